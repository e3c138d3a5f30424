"""Attacks of our own making, in families, each case repeatable by its seed."""

from attacks.arrays import odd_arrays
from attacks.base import Family
from attacks.states import damaged, edited_state, odd_options

FAMILIES = (
    Family("damaged-states", damaged, 2500),
    Family("edited-states", edited_state, 2500),
    Family("options", odd_options, 300),
    Family("arrays", odd_arrays, 500),
)
