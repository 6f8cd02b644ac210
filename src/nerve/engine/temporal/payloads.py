"""How values travel through Temporal: as JSON whose keys keep their order, and large ones by their hash."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Sequence
from typing import Any, Protocol

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    BinaryNullPayloadConverter,
    BinaryPlainPayloadConverter,
    CompositePayloadConverter,
    DataConverter,
    EncodingPayloadConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

MAX_INLINE_BYTES = 64 * 1024
"""Larger payloads are kept in the projection; the history of Temporal has their hash."""
STORED_ENCODING = b"nerve/stored"


class PayloadStore(Protocol):
    """Where large payloads are kept; its methods block and can be called from any thread."""

    def put_payload(self, run: str, data: bytes) -> str:
        """Keep data as long as a run, and return its hash."""

    def read_payload(self, hash: str) -> bytes: ...


class OrderedJsonConverter(EncodingPayloadConverter):
    """JSON with the keys of objects in their order; the converter of the SDK sorts them."""

    @property
    def encoding(self) -> str:
        return "json/plain"

    def to_payload(self, value: Any) -> Payload:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return Payload(metadata={"encoding": b"json/plain"}, data=text.encode())

    def from_payload(self, payload: Payload, type_hint: type | None = None) -> Any:
        return json.loads(payload.data)


class OrderedPayloadConverter(CompositePayloadConverter):
    """Converts None, bytes and JSON."""

    def __init__(self) -> None:
        super().__init__(BinaryNullPayloadConverter(), BinaryPlainPayloadConverter(), OrderedJsonConverter())


class StoredPayloadCodec(PayloadCodec, WithSerializationContext):
    """Puts large payloads into a store before the history gets their hash."""

    def __init__(self, store: PayloadStore, workflow_id: str = "") -> None:
        self._store, self._workflow_id = store, workflow_id

    def with_context(self, context: SerializationContext) -> StoredPayloadCodec:
        if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext):
            return StoredPayloadCodec(self._store, context.workflow_id or "")
        return self

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._store_large(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        return [await self._restore(payload) for payload in payloads]

    async def _store_large(self, payload: Payload) -> Payload:
        if payload.ByteSize() <= MAX_INLINE_BYTES:
            return payload
        data = payload.SerializeToString()
        hash = await asyncio.to_thread(self._store.put_payload, self._workflow_id, data)
        return Payload(metadata={"encoding": STORED_ENCODING}, data=hash.encode())

    async def _restore(self, payload: Payload) -> Payload:
        if payload.metadata.get("encoding") != STORED_ENCODING:
            return payload
        data = await asyncio.to_thread(self._store.read_payload, payload.data.decode())
        return Payload.FromString(data)


def make_data_converter(store: PayloadStore) -> DataConverter:
    """Return the converter of all clients and workers; large payloads are kept in a store."""
    return dataclasses.replace(
        DataConverter.default,
        payload_converter_class=OrderedPayloadConverter,
        payload_codec=StoredPayloadCodec(store),
    )
