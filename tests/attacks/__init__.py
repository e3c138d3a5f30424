"""Home-made attacks, in families, each case repeatable by its seed."""

from attacks.base import Family as Family
from attacks.files import corrections, descriptions, designs, features, results, stores
from attacks.images import hostile_images
from attacks.processes import killed_compare, killed_predict, two_compares, two_predicts
from attacks.resumes import full_disk, odd_names, resumed
from attacks.service import damaged_log, odd_requests
from attacks.states import damaged, edited_state, odd_arrays, odd_options

FAMILIES = (
    Family("damaged-states", damaged, 1000),
    Family("edited-states", edited_state, 1500),
    Family("options", odd_options, 300),
    Family("arrays", odd_arrays, 500),
    Family("images", hostile_images, 500),
    Family("resumed", resumed, 150),
    Family("names", odd_names, 20),
    Family("features", features, 200),
    Family("stores", stores, 100),
    Family("results", results, 40),
    Family("designs", designs, 200),
    Family("descriptions", descriptions, 100),
    Family("corrections", corrections, 100),
    Family("full-disk", full_disk, 8),
    Family("killed-predict", killed_predict, 12),
    Family("two-predicts", two_predicts, 2),
    Family("killed-compare", killed_compare, 1),
    Family("two-compares", two_compares, 1),
    Family("damaged-logs", damaged_log, 15),
    Family("requests", odd_requests, 15),
)
