"""What a record says of the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from crg.results import provenance as ledger


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """Nothing is remembered from test to test."""
    ledger.processor_model.cache_clear()
    ledger.blas.cache_clear()


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC, 7B13\nmodel name\t: other\n", "AMD EPYC 7B13"),
        ("Hardware\t: Board\nModel\t\t: Raspberry Pi 4\n", "Raspberry Pi 4"),
        ("", "from the platform"),
    ],
)
def test_the_processor_has_a_name(
    text: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says it on Linux, by several names, and the platform elsewhere."""
    (tmp_path / "cpuinfo").write_text(text)
    monkeypatch.setattr(ledger, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.processor", lambda: "from the platform")
    assert ledger.processor_model() == model


def test_a_processor_without_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file and a silent platform are no error."""
    monkeypatch.setattr(ledger, "_CPUINFO", Path("/nowhere/cpuinfo"))
    monkeypatch.setattr("platform.processor", lambda: "")
    assert ledger.processor_model() is None


def test_the_blas_of_numpy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are named too, and that of another library is none of ours."""
    torch = {"user_api": "blas", "internal_api": "mkl", "filepath": "/torch/lib/libmkl.so"}
    own = {"user_api": "blas", "internal_api": "openblas", "version": "0.3",
           "architecture": "Haswell", "filepath": "/numpy.libs/libopenblas.so"}  # fmt: skip
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [torch, own])
    assert ledger.blas() == "openblas 0.3 Haswell"
    ledger.blas.cache_clear()
    monkeypatch.setattr("threadpoolctl.threadpool_info", lambda: [])
    built = ledger.blas()
    assert built and "Haswell" not in built
