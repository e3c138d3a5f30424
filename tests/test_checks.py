"""Every method obeys every law, and every law can be broken."""

from __future__ import annotations

from typing import Any

import pytest

import bad_adapters
import bad_methods
import crg
import crg.checks
from crg.checks import (
    LAWS,
    Law,
    LawBroken,
    LawSkipped,
    answers,
    check_law,
    check_method,
    classes,
    inputs,
    iter_laws,
    lasting,
    libraries,
    options,
    refused,
    repeatable,
)
from crg.methods import registry
from crg.methods.options import build_config
from outside_methods import Nearest

PAIRS: list[tuple[Law, type[Any]]] = [
    (options.options_are_documented, bad_methods.NoHelp),
    (options.options_are_documented, bad_methods.Thawed),
    (options.options_may_be_given_as_text, bad_methods.ListOption),
    (answers.predictions_are_consistent, bad_methods.TwoDimensional),
    (answers.predictions_are_consistent, bad_methods.ForgetsDtype),
    (answers.predictions_are_consistent, bad_methods.WrongLabel),
    (answers.hostile_streams_give_finite_logits, bad_methods.TakesLogOfZero),
    (repeatable.same_stream_gives_same_logits, bad_methods.Unseeded),
    (repeatable.adapters_are_independent, bad_methods.SharedState),
    (repeatable.global_random_state_is_left_alone, bad_methods.GloballyRandom),
    (repeatable.reset_returns_to_the_start, bad_methods.ForgetsToReset),
    (inputs.inputs_are_not_modified, bad_methods.WritesToTask),
    (inputs.inputs_are_not_modified, bad_adapters.WritesToViews),
    (inputs.predictions_are_not_modified, bad_methods.ReusesLogits),
    (inputs.length_of_views_does_not_matter, bad_adapters.FeelsLength),
    (inputs.one_view_may_be_a_vector, bad_adapters.NeedsRows),
    (inputs.half_precision_views_are_accepted, bad_adapters.SumsHalf),
    (inputs.step_many_equals_step_by_step, bad_adapters.BackwardsInBulk),
    (refused.refused_samples_change_nothing, bad_adapters.CountsBeforeChecking),
    (refused.refused_samples_change_nothing, bad_adapters.AcceptsAll),
    (refused.refused_class_changes_change_nothing, bad_adapters.ForgetsBeforeChecking),
    (refused.last_two_classes_stay, bad_adapters.RemovesLastTwo),
    (lasting.saved_state_goes_on, bad_methods.ForgetsToSave),
    (lasting.pickled_adapter_goes_on, bad_methods.NotPicklable),
    (lasting.copied_adapter_goes_on, bad_methods.SharesWithCopies),
    (lasting.state_is_bounded, bad_methods.RemembersAll),
    (classes.order_of_classes_does_not_matter, bad_methods.PrefersFirst),
    (classes.class_added_at_once_counts_as_given, bad_methods.RemembersFirstTask),
    (classes.class_removed_at_once_counts_as_never_given, bad_methods.RemembersFirstTask),
    (classes.classes_may_come_and_go, bad_methods.IgnoresClassChanges),
    (classes.classes_are_still_recognised_after_changes, bad_methods.RemovesWrongClass),
    (libraries.torch_agrees_with_numpy, bad_methods.DiffersOnTorch),
    (libraries.torch_agrees_with_numpy, bad_methods.FallsBackToNumpy),
    (libraries.torch_classes_may_come_and_go, bad_methods.DiffersOnTorch),
    (libraries.single_precision_stays_near_double, bad_methods.FailsInSingle),
]


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers is forgotten after it."""
    crg.list_methods()
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("method", crg.list_methods())
def test_every_method_obeys_every_law(method: str, law: Law) -> None:
    """A registered method obeys the law."""
    try:
        check_law(law, method)
    except LawSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("law", "culprit"), PAIRS, ids=lambda thing: thing.__name__)
def test_a_law_can_be_broken(law: Law, culprit: type[Any], own_registry: None) -> None:
    """A method or adapter that was written to break the law is caught, and a good one is not."""
    if law in libraries.LAWS[:2]:
        pytest.importorskip("torch")
    with pytest.raises(LawBroken) as caught:
        check_law(law, "culprit", make_with(culprit))
    assert str(caught.value)
    check_law(law, "nearest", make_with(Nearest))


def test_every_law_but_one_has_a_culprit() -> None:
    """No law is left that nothing is known to break."""
    untested = {law.__name__ for law in LAWS} - {law.__name__ for law, _ in PAIRS}
    assert untested == {"unknown_options_are_refused"}  # has its own test below


def test_unknown_options_accepted_in_silence_are_caught() -> None:
    """A maker that swallows options it does not know breaks the law."""
    with pytest.raises(LawBroken, match="in silence"):
        check_law(
            options.unknown_options_are_refused,
            "zero_shot",
            lambda task, /, **anything: crg.create("zero_shot", task),
        )


def test_outside_method_passes_all(own_registry: None) -> None:
    """A method registered from outside the package is checked by name and passes every law."""
    crg.register(Nearest)
    reasons = check_method("nearest")
    assert all("torch" in reason for reason in reasons)


def test_check_method_names_all_broken_laws(own_registry: None) -> None:
    """The error counts and names what is broken, and only that."""
    crg.register(bad_methods.RemembersAll)
    with pytest.raises(LawBroken, match=r"breaks 1 of 2 laws.*state_is_bounded"):
        check_method("nearest", [lasting.state_is_bounded, repeatable.adapters_are_independent])


def test_iter_laws_gives_a_verdict_each() -> None:
    """Each law has one verdict under its own name, and a skipped one says why."""

    def cannot(make: crg.checks.Make) -> None:
        raise LawSkipped("nothing to look at")

    verdicts = list(iter_laws("zero_shot", [options.options_are_documented, cannot]))
    assert [verdict.law for verdict in verdicts] == ["options_are_documented", "cannot"]
    assert not verdicts[0].broken and not verdicts[0].skipped
    assert verdicts[1].skipped == "nothing to look at"
    assert check_method("zero_shot", [cannot]) == ["cannot: nothing to look at"]


def test_unexpected_errors_break_the_law() -> None:
    """A method that raises something of its own breaks the law, with the cause kept."""

    def fail(make: crg.checks.Make) -> None:
        raise KeyError("lost")

    with pytest.raises(LawBroken, match="KeyError") as caught:
        check_law(fail, "zero_shot")
    assert isinstance(caught.value.__cause__, KeyError)


def test_every_law_states_itself() -> None:
    """Each law has a docstring of one sentence and a name of its own."""
    assert len({law.__name__ for law in LAWS}) == len(LAWS)
    for law in LAWS:
        assert law.__doc__ and law.__doc__.strip().endswith(".")


def make_with(kind: type[Any]) -> crg.checks.Make:
    """Adapters of ``kind``: a method, registered under its name, or an adapter round Nearest."""
    method = Nearest if issubclass(kind, crg.Adapter) else kind
    registry._methods.pop(method.name, None)
    crg.register(method)
    wrap = kind if issubclass(kind, crg.Adapter) else crg.Adapter

    def make(task: crg.Task, /, **given: Any) -> crg.Adapter:
        adapter: crg.Adapter = wrap(method(task, build_config("it", method.Config, given)))
        return adapter

    return make
