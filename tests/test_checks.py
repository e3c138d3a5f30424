"""Every method passes every check, and every check can fail."""

from __future__ import annotations

from typing import Any

import pytest

import bad_adapters
import bad_methods
import crg
import crg.checks
from crg.checks import (
    CHECKS,
    Check,
    CheckFailed,
    CheckSkipped,
    answers,
    check_method,
    inputs,
    iter_checks,
    run_check,
    state,
)
from crg.methods import registry
from crg.methods.options import build_config
from outside_methods import Nearest

PAIRS: list[tuple[Check, type[Any]]] = [
    (answers.options_are_documented, bad_methods.NoHelp),
    (answers.options_are_documented, bad_methods.Thawed),
    (answers.options_may_be_given_as_text, bad_methods.ListOption),
    (answers.predictions_are_consistent, bad_methods.TwoDimensional),
    (answers.predictions_are_consistent, bad_methods.ForgetsDtype),
    (answers.predictions_are_consistent, bad_methods.WrongLabel),
    (answers.adversarial_streams_give_finite_logits, bad_methods.TakesLogOfZero),
    (answers.same_stream_gives_same_logits, bad_methods.Unseeded),
    (answers.adapters_are_independent, bad_methods.SharedState),
    (answers.global_random_state_is_left_alone, bad_methods.GloballyRandom),
    (answers.reset_returns_to_the_start, bad_methods.ForgetsToReset),
    (inputs.inputs_are_not_modified, bad_methods.WritesToTask),
    (inputs.inputs_are_not_modified, bad_adapters.WritesToViews),
    (inputs.predictions_are_not_modified, bad_methods.ReusesLogits),
    (inputs.length_of_views_does_not_matter, bad_adapters.FeelsLength),
    (inputs.one_view_may_be_a_vector, bad_adapters.NeedsRows),
    (inputs.half_precision_views_are_accepted, bad_adapters.SumsHalf),
    (inputs.step_many_equals_step_by_step, bad_adapters.BackwardsInBulk),
    (inputs.refused_samples_change_nothing, bad_adapters.CountsBeforeChecking),
    (inputs.refused_samples_change_nothing, bad_adapters.AcceptsAll),
    (inputs.refused_class_changes_change_nothing, bad_adapters.ForgetsBeforeChecking),
    (inputs.last_two_classes_stay, bad_adapters.RemovesLastTwo),
    (state.saved_state_continues, bad_methods.ForgetsToSave),
    (state.pickled_adapter_continues, bad_methods.NotPicklable),
    (state.copied_adapter_continues, bad_methods.SharesWithCopies),
    (state.state_is_bounded, bad_methods.RemembersAll),
    (state.answering_changes_nothing, bad_methods.LearnsFromAnswering),
    (state.second_pass_answers_every_image, bad_methods.LosesOnFinishing),
    (state.corrections_are_taken_in_or_refused, bad_methods.ForgetsCorrections),
    (state.corrections_are_taken_in_or_refused, bad_methods.DividesByCorrections),
    (state.corrections_are_taken_in_or_refused, bad_methods.RefusesCorrections),
    (state.corrections_are_taken_in_or_refused, bad_adapters.CountsCorrections),
    (state.order_of_classes_does_not_matter, bad_methods.PrefersFirst),
    (state.class_added_at_once_counts_as_given, bad_methods.RemembersFirstTask),
    (state.class_removed_at_once_counts_as_never_given, bad_methods.RemembersFirstTask),
    (state.classes_may_come_and_go, bad_methods.IgnoresClassChanges),
    (state.classes_are_still_recognised_after_changes, bad_methods.RemovesWrongClass),
    (answers.torch_agrees_with_numpy, bad_methods.DiffersOnTorch),
    (answers.torch_agrees_with_numpy, bad_methods.FallsBackToNumpy),
    (answers.torch_classes_may_come_and_go, bad_methods.DiffersOnTorch),
    (answers.single_precision_stays_near_double, bad_methods.FailsInSingle),
]


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Methods that a test registers are removed after it."""
    crg.list_methods()
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", crg.list_methods())
def test_every_method_passes_every_check(method: str, check: Check) -> None:
    """A registered method passes the check."""
    try:
        run_check(check, method)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("check", "culprit"), PAIRS, ids=lambda thing: thing.__name__)
def test_a_check_can_fail(check: Check, culprit: type[Any], own_registry: None) -> None:
    """A method or adapter that was written to fail the check is caught."""
    if check in (answers.torch_agrees_with_numpy, answers.torch_classes_may_come_and_go):
        pytest.importorskip("torch")
    with pytest.raises(CheckFailed) as caught:
        run_check(check, "culprit", make_with(culprit))
    assert str(caught.value)


def test_every_check_but_one_has_a_culprit() -> None:
    """No check is left that nothing is known to fail."""
    untested = {check.__name__ for check in CHECKS} - {check.__name__ for check, _ in PAIRS}
    assert untested == {"unknown_options_are_refused"}  # has its own test below


def test_unknown_options_accepted_in_silence_are_caught() -> None:
    """A maker that swallows options it does not know fails the check."""
    with pytest.raises(CheckFailed, match="in silence"):
        run_check(
            answers.unknown_options_are_refused,
            "zero_shot",
            lambda task, /, **anything: crg.create("zero_shot", task),
        )


def test_outside_method_passes_all(own_registry: None) -> None:
    """A method registered from outside the package is checked by name and passes every check."""
    crg.register(Nearest)
    reasons = check_method("nearest")
    assert all("torch" in reason for reason in reasons)


def test_check_method_names_all_failed_checks(own_registry: None) -> None:
    """The error counts and names what failed, and only that."""
    crg.register(bad_methods.RemembersAll)
    with pytest.raises(CheckFailed, match=r"fails 1 of 2 checks.*state_is_bounded"):
        check_method("nearest", [state.state_is_bounded, answers.adapters_are_independent])


def test_iter_checks_gives_a_verdict_each() -> None:
    """Each check has one verdict under its own name, and a skipped one says why."""

    def cannot(make: crg.checks.Make) -> None:
        raise CheckSkipped("nothing to look at")

    verdicts = list(iter_checks("zero_shot", [answers.options_are_documented, cannot]))
    assert [verdict.check for verdict in verdicts] == ["options_are_documented", "cannot"]
    assert not verdicts[0].failed and not verdicts[0].skipped
    assert verdicts[1].skipped == "nothing to look at"
    assert check_method("zero_shot", [cannot]) == ["cannot: nothing to look at"]


def test_unexpected_errors_fail_the_check() -> None:
    """A method that raises fails the check, with the cause kept."""

    def fail(make: crg.checks.Make) -> None:
        raise KeyError("lost")

    with pytest.raises(CheckFailed, match="KeyError") as caught:
        run_check(fail, "zero_shot")
    assert isinstance(caught.value.__cause__, KeyError)


def test_every_law_states_itself() -> None:
    """Each check has a docstring of one sentence and a unique name."""
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
    for check in CHECKS:
        assert check.__doc__ and check.__doc__.strip().endswith(".")


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
