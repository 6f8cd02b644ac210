"""`GET /metrics`: the text that Prometheus reads."""

from prometheus_client.parser import text_string_to_metric_families

from server.conftest import Served, until


async def test_prometheus_reads_the_metrics_with_a_read_token(served: Served) -> None:
    async with served.client("read") as client:
        first = await client.get("/metrics")
        assert first.headers["content-type"].startswith("text/plain; version=0.0.4")
        async with served.client() as admin:
            await admin.post("/api/runs", json={"workflow": "hello", "wait": True})
        text = (await client.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    [ended] = families["nerve_runs_ended"].samples
    assert ended.labels == {"workflow": "hello", "state": "completed"}
    assert ended.value == 1
    assert [sample.value for sample in families["nerve_runs"].samples] == [1]


async def test_the_streams_of_clients_are_counted(served: Served) -> None:
    async with served.client() as client, client.stream("GET", "/events") as stream:
        assert stream.status_code == 200

        def has_stream() -> bool:
            return len(served.api.hub._subscriptions) == 1

        await until(has_stream)
        assert "nerve_streams 1\n" in (await client.get("/metrics")).text


async def test_a_server_that_is_not_scraped_counts_no_events(served: Served) -> None:
    assert not any("telemetry" in watcher.__module__ for watcher in served.api.session.engine.watchers)
    assert served.api.session._metrics is None
