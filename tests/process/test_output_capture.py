"""Output is streamed as text, kept within limits, and does not block the event loop."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.process import child_env, run_command
from nerve.process.output_capture import HeadAndTail
from process.seen import TAG, eventually, resident, tagged

MIB = 1024 * 1024


class Pulse:
    """The longest event loop delay and the peak memory of a block."""

    async def __aenter__(self) -> Pulse:
        self.lag, self.base = 0.0, resident()
        self.peak = self.base
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _beat(self) -> None:
        while True:
            begin = time.monotonic()
            await asyncio.sleep(0.005)
            self.lag = max(self.lag, time.monotonic() - begin - 0.005)
            self.peak = max(self.peak, resident())

    @property
    def growth(self) -> int:
        return self.peak - self.base


@given(st.lists(st.binary(max_size=12)), st.integers(0, 8))
def test_head_and_tail_are_kept_and_the_middle_is_counted(chunks: list[bytes], keep: int) -> None:
    chunks = [bytes(byte % 128 for byte in chunk) for chunk in chunks]
    kept, whole = HeadAndTail(keep), b"".join(chunks)
    for chunk in chunks:
        kept.add(chunk)
    dropped = max(0, len(whole) - 2 * keep)
    head, tail = whole[:keep].decode(), whole[len(whole) - keep :].decode()
    text = asyncio.run(kept.read_text())
    assert kept.dropped == dropped
    assert text == (f"{head}\n[{dropped} bytes left out here]\n{tail}" if dropped else whole.decode())


@given(st.text(), st.integers(1, 5))
def test_text_that_fits_is_kept_as_it_was(text: str, keep: int) -> None:
    data = text.encode()
    kept = HeadAndTail(max(keep, len(data) // 2 + 1))
    for byte in data:
        kept.add(bytes([byte]))
    assert asyncio.run(kept.read_text()) == text


async def test_chunks_arrive_while_the_command_runs() -> None:
    heard: list[tuple[str, str]] = []
    task = asyncio.create_task(
        run_command(["bash", "-c", "echo one; sleep 600"], on_output=lambda *chunk: heard.append(chunk))
    )
    await eventually(lambda: heard)
    assert heard == [("stdout", "one\n")]
    task.cancel()
    await asyncio.wait([task])


async def test_a_character_split_over_two_writes_arrives_whole() -> None:
    heard: list[str] = []
    script = r"printf '\xf0\x9f'; sleep 0.1; printf '\x99\x82'; printf '\xff'; printf '\xc3'"
    result = await run_command(["bash", "-c", script], on_output=lambda _, text: heard.append(text))
    assert result.stdout == "".join(heard) == "🙂\ufffd\ufffd"


async def test_stdout_and_stderr_are_separate() -> None:
    heard: dict[str, str] = {"stdout": "", "stderr": ""}

    def hear(name: str, text: str) -> None:
        assert len(text) <= 64 * 1024
        heard[name] += text

    result = await run_command(["bash", "-c", "seq 100000; seq 5 >&2"], on_output=hear)
    assert heard == {"stdout": result.stdout, "stderr": result.stderr}
    assert result.stdout.splitlines()[-1] == "100000"


async def test_the_middle_is_replaced_by_a_line_with_its_size() -> None:
    result = await run_command(["bash", "-c", "printf %04d {0..99}; printf %0100d >&2"], keep=8)
    assert result.stdout == "00000001\n[384 bytes left out here]\n00980099"
    assert result.dropped == 384 + 84


async def test_an_error_of_on_output_ends_the_tree_and_is_raised(tag: str) -> None:
    def refuse(name: str, text: str) -> None:
        raise LookupError(text)

    with pytest.raises(LookupError, match="hello"):
        await run_command(
            ["bash", "-c", "echo hello; sleep 600"], env=child_env({TAG: tag}), on_output=refuse
        )
    assert tagged(tag) == []


async def test_much_output_neither_fills_memory_nor_blocks_the_loop() -> None:
    async with Pulse() as pulse:
        result = await run_command(
            ["head", "-c", str(64 * MIB), "/dev/zero"], keep=MIB, on_output=lambda *_: None
        )
    assert result.dropped == 62 * MIB
    assert pulse.growth <= 16 * MIB
    assert pulse.lag <= 0.25  # other tests may share the processor; the full figure is below


@pytest.mark.full
@pytest.mark.parametrize(
    "script",
    [
        pytest.param("head -c 1G /dev/zero", id="one gibibyte without a newline"),
        pytest.param("yes a line of output | head -c 1G", id="millions of lines"),
    ],
)
async def test_a_gibibyte_neither_fills_memory_nor_blocks_the_loop(script: str) -> None:
    async with Pulse() as pulse:
        result = await run_command(["bash", "-c", script], on_output=lambda *_: None)
    assert result.dropped == (1024 - 32) * MIB
    assert pulse.growth <= 64 * MIB
    assert pulse.lag <= 0.1


@pytest.mark.full
async def test_binary_output_does_not_block_the_loop() -> None:
    async with Pulse() as pulse:
        result = await run_command(
            ["head", "-c", "256M", "/dev/urandom"], on_output=lambda *_: None, keep=4 * MIB
        )
    assert result.dropped == (256 - 8) * MIB
    assert pulse.growth <= 64 * MIB
    assert pulse.lag <= 0.1
