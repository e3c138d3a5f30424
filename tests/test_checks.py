"""Every method passes every check, and every check can fail."""

from __future__ import annotations

from typing import Any

import pytest

import bad_methods as bad
import crg
import crg.checks
from bad_methods import Nearest
from crg.checks import (
    CHECKS,
    Check,
    CheckFailed,
    CheckSkipped,
    answers,
    check_method,
    iter_checks,
    run_check,
    state,
)
from crg.checks.base import furnished
from crg.methods import registry
from crg.methods.options import build_config

CULPRITS: dict[Check, list[type[Any]]] = {
    answers.options_are_documented: [bad.NoHelp, bad.Thawed],
    answers.options_may_be_given_as_text: [bad.ListOption],
    answers.predictions_are_consistent: [bad.TwoDimensional, bad.ForgetsDtype, bad.WrongLabel],
    answers.adversarial_streams_give_finite_logits: [bad.TakesLogOfZero],
    answers.same_stream_gives_same_logits: [bad.Unseeded],
    answers.adapters_are_independent: [bad.SharedState],
    answers.global_random_state_is_left_alone: [bad.GloballyRandom],
    answers.reset_returns_to_the_start: [bad.ForgetsToReset],
    answers.inputs_are_not_modified: [bad.WritesToTask, bad.WritesToViews],
    answers.predictions_are_not_modified: [bad.ReusesLogits],
    answers.form_of_views_does_not_matter: [bad.FeelsLength, bad.NeedsRows, bad.SumsHalf],
    answers.step_many_equals_step_by_step: [bad.BackwardsInBulk],
    answers.refused_samples_change_nothing: [bad.CountsBeforeChecking, bad.AcceptsAll],
    answers.refused_class_changes_change_nothing: [bad.ForgetsBeforeChecking, bad.RemovesLastTwo],
    answers.torch_agrees_with_numpy: [bad.DiffersOnTorch, bad.FallsBackToNumpy],
    answers.single_precision_stays_near_double: [bad.FailsInSingle],
    state.saved_state_continues: [bad.ForgetsToSave],
    state.pickled_adapter_continues: [bad.NotPicklable],
    state.copied_adapter_continues: [bad.SharedState],
    state.state_is_bounded: [bad.RemembersAll],
    state.answering_changes_nothing: [bad.LearnsFromAnswering],
    state.second_pass_answers_every_image: [bad.LosesOnFinishing],
    state.corrections_are_taken_in_or_refused: [
        *(bad.ForgetsCorrections, bad.DividesByCorrections),
        *(bad.RefusesCorrections, bad.CountsCorrections),
    ],
    state.order_of_classes_does_not_matter: [bad.PrefersFirst],
    state.classes_changed_at_once_count_as_given: [bad.RemembersFirstTask],
    state.classes_may_come_and_go: [bad.IgnoresClassChanges],
    state.classes_are_still_recognised_after_changes: [bad.RemovesWrongClass],
}
PAIRS = [(check, culprit) for check, culprits in CULPRITS.items() for culprit in culprits]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("method", crg.list_methods())
def test_every_method_passes_every_check(method: str, check: Check) -> None:
    """A registered method passes the check."""

    def make(task: crg.Task, /, **given: Any) -> crg.Adapter:
        fewer = {"steps": 2} if method == "difftpt" else {}  # of four, as good as equal
        return crg.create(method, furnished(task, crg.get_method(method).needs), **fewer | given)

    try:
        run_check(check, method, make)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("check", "culprit"), PAIRS, ids=lambda thing: thing.__name__)
def test_a_check_can_fail(check: Check, culprit: type[Any], own_registry: None) -> None:
    """A method or adapter that was written to fail the check is caught."""
    if "torch" in check.__name__:
        pytest.importorskip("torch")
    with pytest.raises(CheckFailed) as caught:
        run_check(check, "culprit", make_with(culprit))
    assert str(caught.value)


def test_every_check_has_a_culprit_and_states_itself() -> None:
    """No check is left that nothing is known to fail, and each has one sentence and one name."""
    assert len({check.__name__ for check in CHECKS}) == len(CHECKS)
    assert set(CHECKS) - set(CULPRITS) == {answers.unknown_options_are_refused}  # see below
    assert all((check.__doc__ or "").strip().endswith(".") for check in CHECKS)
    with pytest.raises(CheckFailed, match="in silence"):
        run_check(
            answers.unknown_options_are_refused, "it", lambda task, /, **_: crg.create("tda", task)
        )


def test_outside_method_passes_all(own_registry: None) -> None:
    """A method registered from outside the package is checked by name and passes every check."""
    crg.register(Nearest)
    assert all("torch" in reason for reason in check_method("nearest"))


def test_iter_checks_gives_a_verdict_each(own_registry: None) -> None:
    """Each check has one verdict under its name; failures are counted, and errors fail too."""

    def cannot(make: crg.checks.Make) -> None:
        raise CheckSkipped("nothing to look at")

    def lost(make: crg.checks.Make) -> None:
        raise KeyError("lost")

    first, second, third = iter_checks("zero_shot", [answers.options_are_documented, cannot, lost])
    assert (first.check, second.check) == ("options_are_documented", "cannot")
    assert not first.failed and not first.skipped and second.skipped == "nothing to look at"
    assert third.failed == "The method raised KeyError: 'lost'"
    assert check_method("zero_shot", [cannot]) == ["cannot: nothing to look at"]
    crg.register(bad.RemembersAll)
    with pytest.raises(CheckFailed, match=r"fails 1 of 2 checks.*state_is_bounded"):
        check_method("nearest", [state.state_is_bounded, answers.adapters_are_independent])


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
