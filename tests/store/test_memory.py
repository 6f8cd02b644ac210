"""The memory store fulfils the contract."""

import pytest

from nerve.store.memory import MemoryStore
from nerve.testing.store_contract import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()

    def test_nothing_survives(self, store: MemoryStore) -> None:
        assert not store.durable
