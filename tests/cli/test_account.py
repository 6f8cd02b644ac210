"""The account tells when a settled step has run twice."""

import pytest

from nerve.demo.crash_report import CrashReport


def made(before: str, after: str, reused: int, ran: int, cut_off: int) -> CrashReport:
    names = [f"step[{number}]" for number in range(reused + ran)]
    return CrashReport(
        names[:reused], names[reused:], names[reused : reused + cut_off], before.split(), after.split()
    )


@pytest.mark.parametrize(
    "account",
    [
        made("a b c", "c d", reused=2, ran=2, cut_off=1),
        made("a b", "c d", reused=2, ran=2, cut_off=1),
        made("a b", "c d", reused=2, ran=2, cut_off=0),
        made("a b", "", reused=2, ran=0, cut_off=0),
    ],
)
def test_consistent_reports(account: CrashReport) -> None:
    assert account.is_consistent
    assert "no settled step ran twice" in account.format_lines()[-1]


@pytest.mark.parametrize(
    "account",
    [
        made("a b c", "a c d", reused=2, ran=2, cut_off=1),
        made("a b", "b c d", reused=2, ran=2, cut_off=0),
        made("a a b", "c d", reused=2, ran=2, cut_off=0),
        made("a b c", "c d d", reused=2, ran=2, cut_off=1),
        made("a b", "c", reused=2, ran=2, cut_off=0),
    ],
)
def test_inconsistent_reports(account: CrashReport) -> None:
    assert not account.is_consistent
    assert "A SETTLED STEP RAN TWICE" in account.format_lines()[-1]
