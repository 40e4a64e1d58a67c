"""The command serve: a model over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from longtail.cli.options import BeamSize, Device, ModelFolder, Shards, Threads, app, shard_numbers
from longtail.errors import MissingExtra, UsageError

__all__ = ["serve"]

_MB = 1_000_000


@app.command(epilog="Example: longtail serve model --documents train.jsonl --port 8321")
def serve(
    model: ModelFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0: all addresses of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0: any free port.")] = 8000,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name accepted in the header Host; repeatable."),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    documents: Annotated[
        str | None,
        typer.Option(metavar="TRAIN", help="Training data, for examples and neighbours of labels."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the token that clients must send; default: LONGTAIL_TOKEN."),
    ] = None,
    beam_size: BeamSize = None,
    threads: Threads = 0,
    device: Device = "auto",
    batch: Annotated[int, typer.Option(min=1, help="Largest number of documents per batch.")] = 64,
    queue_ms: Annotated[
        float, typer.Option(min=0, help="Expected wait in ms above which requests get 503.")
    ] = 100,
    timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds until a request gets 503.")
    ] = 10,
    max_body: Annotated[float, typer.Option(min=0.001, help="Largest body in MB.")] = 2,
    max_documents: Annotated[
        int, typer.Option(min=1, help="Largest number of documents per request.")
    ] = 256,
    max_text: Annotated[
        int, typer.Option(min=1, help="Largest number of characters per document.")
    ] = 100_000,
    body_timeout: Annotated[
        float, typer.Option(min=0.001, help="Seconds for the whole body to arrive.")
    ] = 10,
    max_connections: Annotated[
        int,
        typer.Option(
            min=0,
            help="Largest number of connections per process; 0: ¾ of `ulimit -n`, up to 10,000.",
        ),
    ] = 0,
    grace: Annotated[
        float, typer.Option(min=0, help="Seconds for requests in flight when the server stops.")
    ] = 10,
    drain: Annotated[
        float, typer.Option(min=0, help="Seconds of «not ready» before the server stops.")
    ] = 0,
    watch: Annotated[
        float, typer.Option(min=0, help="Seconds between checks for a new model; 0: never.")
    ] = 0,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log every request, without its text.")
    ] = False,
    shards: Shards = None,
) -> None:
    """Serve a model over HTTP, with a web page; /docs lists the endpoints, SIGHUP reloads."""
    from longtail.server.settings import Limits, ServerSettings, default_connections

    limits = Limits(
        round(max_body * _MB), max_documents, max_text, body_timeout, queue_ms / 1000, timeout
    )
    settings = ServerSettings(
        model=model,
        host=host,
        port=port,
        workers=workers,
        documents=documents,
        threads=threads,
        device=device,
        beam_size=beam_size,
        shards=shard_numbers(shards),
        batch_documents=batch,
        token=_token(token_file),
        grace_seconds=grace,
        drain_seconds=drain,
        watch_seconds=watch,
        access_log=access_log,
        connections=max_connections or default_connections(),
        allowed_hosts=tuple(allowed_host or ()),
        limits=limits,
    )
    if settings.token is None and not settings.is_loopback:
        _warn_of_open_server(host)
    _check_extra()
    if workers == 1:
        from longtail.server.running import run_server

        run_server(settings)
    else:
        from longtail.server.listening import run_workers

        raise typer.Exit(run_workers(settings))


def _check_extra() -> None:
    from importlib.util import find_spec

    if any(
        find_spec(name) is None for name in ("fastapi", "uvicorn", "httptools", "prometheus_client")
    ):
        raise MissingExtra("longtail serve", "server")


def _token(file: Path | None) -> str | None:
    """Return the token of a file, or of the environment."""
    if file is None:
        token = os.environ.get("LONGTAIL_TOKEN", "").strip()
        if not token:
            return None
        source = "LONGTAIL_TOKEN"
    else:
        try:
            token = file.read_text("utf-8").strip()
            source = str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--token-file {file}: {getattr(error, 'strerror', None) or 'not UTF-8'}"
            ) from None
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{source}: expected one token of ASCII letters, digits and signs, without blanks"
        )
    return token


def _warn_of_open_server(host: str) -> None:
    import logging

    logging.getLogger("longtail").warning(
        "--host %s without a token: everyone who can reach this machine can use the model; "
        "see --token-file",
        host,
    )
