"""Connections over real sockets: bounds of headers and of time, and what is counted of those that are refused."""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import pytest
from asking import GOOD, run

pytest.importorskip("uvicorn", reason="needs longtail[server]")

import uvicorn
from uvicorn.server import ServerState

from longtail.server.http_connection import RefusedConnections, connections_of
from longtail.server.settings import Limits, default_connections

PATIENT = Limits()
HASTY = Limits(body_seconds=0.2)
HEAD = b"POST /v1/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
WHOLE = HEAD + b"content-length: %d\r\n\r\n%b" % (len(GOOD), GOOD)
LIVE = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Listening:
    """A server on a port of this machine."""

    def __init__(self, port, state, served):
        self.port = port
        self.state = state
        self.served = served
        self.clients = []

    async def connect(self, sent=b""):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self.clients.append(writer)
        writer.write(sent)
        return reader, writer

    async def answers_until_end(self, sent):
        """Send, and return all that is answered until the server ends the connection."""
        reader, writer = await self.connect(sent)
        answer = await read_to_end(reader)
        writer.close()
        return answer

    async def refused(self):
        """Return the counts of refused connections by reason."""
        metrics = (await self.served.client.get("/metrics")).text
        found = re.findall(r'longtail_connections_refused_total\{reason="(\w+)"\} (\d+)', metrics)
        return {reason: int(count) for reason, count in found}


async def read_to_end(reader):
    answer = b""
    while piece := await reader.read(65_536):
        answer += piece
    return answer


async def write_for_ever(writer, piece):
    while True:
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)


async def read_answer(reader):
    """Return one answer, whose length is in its headers."""
    head = await reader.readuntil(b"\r\n\r\n")
    return head + await reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))


def listening(serving, question, limits=PATIENT, connections=1000, keep_alive=75, **settings):
    """Serve on a socket, ask, and return the answer."""

    async def ask(served):
        async with listen(served, limits, connections, keep_alive) as server:
            return await question(server)

    return run(serving, ask, limits=limits, **settings)


@asynccontextmanager
async def listen(served, limits, connections, keep_alive):
    protocol = connections_of(limits, connections, served.app, served.server.telemetry)
    config = uvicorn.Config(
        served.app,
        protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_keep_alive=keep_alive,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    made = lambda: protocol(config=config, server_state=state, app_state={}, _loop=loop)  # noqa: E731
    listener = await loop.create_server(made, "127.0.0.1", 0)
    try:
        server = Listening(listener.sockets[0].getsockname()[1], state, served)
        yield server
    finally:
        listener.close()
        for client in server.clients:
            client.transport.abort()
        for connection in list(state.connections):
            connection.transport.abort()
        while state.connections or state.tasks:
            await asyncio.sleep(0.001)


class TestHeaders:
    @pytest.mark.parametrize(
        ("sent", "status", "reason"),
        [
            (b"GET / HTTP/1.1\r\nx: " + b"a" * 66_000, b"431", "large_headers"),
            (b"GET / HTTP/1.1\r\nx: " + b"a" * 66_000 + b"\r\n\r\n", b"431", "large_headers"),
            (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 101 + b"\r\n", b"431", "large_headers"),
            (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 102, b"431", "large_headers"),
            (b"GET / HTTP/1.1\r\n" + b"a" * 66_000, b"431", "large_headers"),
            (b"GET /" + b"a" * 17_000, b"414", "long_url"),
            (b"GET /" + b"a" * 17_000 + b" HTTP/1.1\r\n\r\n", b"414", "long_url"),
            (b"\r\n" * 40_000, b"431", "large_headers"),
            (b"HELLO\r\n\r\n", b"400", "not_http"),
        ],
        ids=[
            "value",
            "whole value",
            "number",
            "number without end",
            "name",
            "URL",
            "whole URL",
            "blank",
            "no HTTP",
        ],
    )
    def test_too_large(self, serving, sent, status, reason):
        async def question(server):
            answer = await server.answers_until_end(sent)
            return answer, await server.refused()

        answer, refused = listening(serving, question)
        assert answer.startswith(b"HTTP/1.1 " + status + b" ")
        assert b"\r\nconnection: close\r\n" in answer
        assert refused == {reason: 1}

    def test_a_flood_ends(self, serving):
        """Who goes on to send after the refusal is cut off, and has not filled the memory."""

        async def question(server):
            _, writer = await server.connect(b"GET / HTTP/1.1\r\nx: ")
            with pytest.raises(ConnectionError):
                await write_for_ever(writer, b"a" * 65_536)

        listening(serving, question)

    def test_trailers_count(self, serving):
        """Headers behind a chunked body have the same bounds, and are not taken for headers."""
        chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(GOOD), GOOD)

        async def question(server):
            reader, writer = await server.connect(chunked + b"x-request-id: mine\r\n\r\n")
            answer = await read_answer(reader)
            writer.close()
            for trailers in (b"x: " + b"a" * 400_000, b"x: y\r\n" * 102):
                with suppress(ConnectionError):
                    assert await server.answers_until_end(chunked + trailers) == b""
            return answer, await server.refused()

        answer, refused = listening(serving, question)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"x-request-id: mine" not in answer
        assert refused == {"large_headers": 2}

    def test_what_is_large_but_within_bounds(self, serving):
        async def question(server):
            reader, writer = await server.connect()
            for sent in (
                HEAD
                + b"x: "
                + b"a" * 60_000
                + b"\r\ncontent-length: %d\r\n\r\n%b" % (len(GOOD), GOOD),
                HEAD + b"x: y\r\n" * 90 + b"content-length: %d\r\n\r\n%b" % (len(GOOD), GOOD),
                HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks_of(1, GOOD.ljust(1000)),
                HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks_of(64, GOOD.ljust(200_000)),
                WHOLE,
            ):
                writer.write(sent)
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
            writer.write(
                b"GET /health/live?" + b"a" * 16_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"
            )
            assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
            writer.write(WHOLE * 17)  # pipelined
            for _ in range(17):
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
            writer.close()
            return await server.refused()

        assert listening(serving, question) == {}

    def test_too_many_small_chunks(self, serving):
        """Neither in one body, nor in several that are sent at once."""
        chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n"

        async def question(server):
            for sent in (
                chunked + chunks_of(1, GOOD.ljust(2000)),
                chunked + chunks_of(16, GOOD.ljust(100_000)),
                (chunked + chunks_of(1, GOOD.ljust(600))) * 3,
            ):
                with suppress(ConnectionError):
                    await server.answers_until_end(sent)
            return await server.refused()

        assert listening(serving, question) == {"small_chunks": 3}

    def test_too_many_pipelined_requests(self, serving):
        """They are neither kept nor answered."""

        async def question(server):
            with suppress(ConnectionError):
                await server.answers_until_end(LIVE * 17 + WHOLE * 1000)
            while server.state.tasks:
                await asyncio.sleep(0.001)
            return server.state.total_requests, await server.refused()

        answered, refused = listening(serving, question)
        assert answered <= 17
        assert refused == {"pipelined": 1}

    def test_a_request_before_too_many_pipelined_ones_is_no_failure(
        self, serving, caplog, monkeypatch
    ):
        """It is told that its connection has ended, where uvloop raises an error for an answer."""
        uvloop = pytest.importorskip("uvloop")
        monkeypatch.setattr(asyncio, "run", uvloop.run)

        async def question(server):
            predicted = server.served.app._predict
            is_refused = asyncio.Event()

            async def slow(scope, receive):
                await is_refused.wait()
                return await predicted(scope, receive)

            server.served.app._predict = slow
            _, writer = await server.connect(WHOLE)
            while not server.state.tasks:
                await asyncio.sleep(0.001)
            writer.write(LIVE * 100)
            while not await server.refused():
                await asyncio.sleep(0.001)
            is_refused.set()
            while server.state.tasks:
                await asyncio.sleep(0.001)
            return await server.refused()

        with caplog.at_level(logging.WARNING):
            assert listening(serving, question) == {"pipelined": 1}
        lines = [record.getMessage() for record in caplog.records]
        assert lines == ["refused: pipelined, 1 since the last such line"]


def chunks_of(size, body):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


class TestTime:
    @pytest.mark.parametrize(
        ("sent", "reason", "statuses"),
        [
            (b"", "slow_headers", [b"408"]),
            (b"\r\n", "slow_headers", [b"408"]),
            (b"GET / HTT", "slow_headers", [b"408"]),
            (LIVE + b"GET /", "slow_headers", [b"200", b"408"]),
            (
                b"GET /health/live HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\na",
                "slow_body",
                [b"200"],
            ),
            (
                b"GET /health/live HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
                "slow_body",
                [b"200"],
            ),
            (
                b"POST /v1/reload HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na",
                "slow_body",
                [b"200"],
            ),
            (
                b"POST /nothing HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
                "slow_body",
                [b"404"],
            ),
        ],
        ids=["nothing", "blank", "line", "second", "unread", "unread chunks", "reload", "nowhere"],
    )
    def test_too_slow(self, serving, sent, reason, statuses):
        async def question(server):
            answer = await server.answers_until_end(sent)
            return answer, await server.refused()

        answer, refused = listening(serving, question, HASTY)
        assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == statuses
        assert refused == {reason: 1}

    def test_blank_lines_between_requests(self, serving):
        """They end the time of keep-alive, and begin that of headers; more of them do not begin it again."""

        async def question(server):
            reader, writer = await server.connect(LIVE)
            await read_answer(reader)
            sending = asyncio.create_task(blank_lines(writer))
            answer = await read_to_end(reader)
            sending.cancel()
            writer.close()
            return answer

        assert listening(serving, question, HASTY).startswith(b"HTTP/1.1 408 ")

    def test_a_request_that_takes_longer_than_headers_may(self, serving, service):
        """Blank lines and half a request behind one that is being answered do not end it."""

        async def question(server):
            predicted = server.served.app._predict

            async def slow(scope, receive):
                await asyncio.sleep(3 * HASTY.body_seconds)
                return await predicted(scope, receive)

            server.served.app._predict = slow
            return await server.answers_until_end(WHOLE + b"\r\nGET /")

        answer = listening(serving, question, HASTY)
        assert re.findall(rb"HTTP/1.1 (\d+) ", answer) == [b"200", b"408"]

    def test_an_answer_that_nobody_reads(self, serving):
        """A client that asks on and on and reads nothing is cut off."""

        async def question(server):
            reader, writer = await server.connect()
            reader._transport.pause_reading()
            page = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
            with pytest.raises(ConnectionError):
                await write_for_ever(writer, page)
            return await server.refused()

        assert listening(serving, question, HASTY) == {"slow_reader": 1}

    def test_keep_alive_ends(self, serving):
        async def question(server):
            return await server.answers_until_end(LIVE)

        assert listening(serving, question, keep_alive=0.1).startswith(b"HTTP/1.1 200 ")


async def blank_lines(writer):
    while True:
        writer.write(b"\r\n")
        await asyncio.sleep(HASTY.body_seconds / 4)


class TestNumber:
    def test_idle_ones_make_room(self, serving):
        """The one that has waited longest goes, be it silent, half sent or kept alive."""

        async def question(server):
            first = await server.connect(LIVE)
            await read_answer(first[0])
            second = await server.connect(b"GET /")
            third = await server.connect()
            first[1].write(LIVE)
            await read_answer(first[0])
            for waiting in (second, third, first):
                reader, _ = await server.connect(LIVE)
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
                with suppress(ConnectionError):
                    assert await read_to_end(waiting[0]) == b""
            return await server.refused()

        assert listening(serving, question, connections=3) == {"made_room": 3}

    def test_busy_ones_do_not(self, serving):
        async def question(server):
            go = asyncio.Event()
            predicted = server.served.app._predict

            async def held(scope, receive):
                await go.wait()
                return await predicted(scope, receive)

            server.served.app._predict = held
            busy = [await server.connect(WHOLE) for _ in range(3)]
            while len(server.state.tasks) < 3:
                await asyncio.sleep(0.001)
            refused = await server.answers_until_end(LIVE)
            go.set()
            for reader, writer in busy:
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
                writer.close()
            reader, writer = await server.connect(LIVE)
            assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
            writer.close()
            return refused, await server.refused()

        answer, refused = listening(serving, question, connections=3)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in answer
        assert refused["too_many_connections"] == 1

    @pytest.mark.parametrize(
        ("files", "connections"), [(256, 192), (1024, 768), (1 << 20, 10_000), (-1, 10_000)]
    )
    def test_of_what_may_be_open(self, monkeypatch, files, connections):
        resource = pytest.importorskip("resource")
        monkeypatch.setattr(resource, "getrlimit", lambda which: (files, files))
        assert default_connections() == connections


class TestLog:
    def test_one_line_a_minute(self, caplog):
        counted = []
        now = 0.0
        refused = RefusedConnections(
            SimpleNamespace(refused_connection=counted.append), lambda: now
        )
        with caplog.at_level(logging.WARNING, "longtail"):
            for _ in range(1000):
                refused.count("not_http")
            refused.count("upgrade")
            now = 61.0
            refused.count("not_http")
        assert len(counted) == 1002
        assert [record.getMessage() for record in caplog.records] == [
            "refused: not_http, 1 since the last such line",
            "refused: upgrade, 1 since the last such line",
            "refused: not_http, 1000 since the last such line",
        ]

    def test_no_line_for_each(self, serving, caplog):
        """Neither from here nor from uvicorn."""

        async def question(server):
            for _ in range(5):
                await server.answers_until_end(b"HELLO\r\n\r\n")
                reader, writer = await server.connect(
                    LIVE.replace(
                        b"\r\n\r\n", b"\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n"
                    )
                )
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
                writer.close()
            return await server.refused()

        with caplog.at_level(logging.INFO):
            assert listening(serving, question) == {"not_http": 5, "upgrade": 5}
        lines = [
            record for record in caplog.records if record.name.startswith(("longtail", "uvicorn"))
        ]
        assert len(lines) == 2
