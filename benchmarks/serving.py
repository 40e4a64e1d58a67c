"""Loads `longtail serve` on loopback: documents a second, latency, overload, memory; or fuzzes it
by its own schema.

Needs `wrk` on PATH. Prints one JSON line a phase, with the goal beside each number it has one for;
other work on the machine shows in all of them, so run it alone. Every request has one real document
of FILE and asks for five labels.

    python benchmarks/serving.py MODEL --documents test.jsonl.gz [--seconds 30] [--overload-seconds
        60] [--workers 1]
    python benchmarks/serving.py TRAIN --documents test.jsonl.gz        trains xr-linear first, as
        TRAIN is no model
    python benchmarks/serving.py MODEL --schema 500                     Schemathesis, 500 examples
        an endpoint

`capacity` is wrk with 32 connections, each sending its next request as soon as it has the answer.
wrk cannot send at a given rate, so `overload` has a quarter more connections each time, from 160 on
to 2,560 at most, until answers of all kinds come at 5 times the capacity; `offered_s` says how far
that went. Latency of accepted requests is not what wrk measures there, as it sees no difference
between 200 and 503: four more connections, each of 20 requests a second, are timed by this script
at the same time. Statuses are counted by the server. `recovered_s` is how long after the overload
an answer last was no 200, or took more than the p99 of the goal. Memory is resident memory of the
server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import longtail as lt

GOALS = {
    "documents_s": 1000,
    "p50_ms": 15,
    "p99_ms": 60,
    "overload_p99_ms": 250,
    "growth": 0.05,
    "recovered_s": 2,
}
OVERLOAD = 5
MOST_CONNECTIONS = 2560
SAMPLERS = 4
SAMPLES_S = 20
HEADERS = {"Content-Type": "application/json"}

LUA = """
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
local bodies, at = {}, 0
for line in io.lines("BODIES") do bodies[#bodies + 1] = line end
function request()
  at = at % #bodies + 1
  return wrk.format(nil, "/v1/predict", nil, bodies[at])
end
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format('{"requests": %d, "seconds": %f, "p50_ms": %f, "p99_ms": %f, "not_2xx": %d, "broken": %d}\\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    e.status, e.connect + e.read + e.write + e.timeout))
end
"""


class Server:
    """A running server."""

    def __init__(self, process, port):
        self.process = process
        self.port = port

    def statuses(self):
        """Return how many answers of each status to predictions there have been."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        counts = re.findall(
            r'longtail_requests_total\{path="/v1/predict",status="(\d+)"\} ([\d.e+]+)', text
        )
        return Counter({int(status): round(float(count)) for status, count in counts})

    def resident_mb(self):
        """Return the resident memory of the server and its workers."""
        pids = [self.process.pid, *_children(self.process.pid)]
        sizes = [
            re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()) for pid in pids
        ]
        return sum(int(size[1]) for size in sizes if size) / 1e3


def _children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


@contextmanager
def serving(model, *options):
    """Serve a model folder on a free port."""
    command = [sys.executable, "-m", "longtail", "serve", str(model), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith("curl "):
            break
    match = re.search(r"page: http://\S+:(\d+)/", "".join(lines))
    if not match:
        sys.exit("".join(lines))
    threading.Thread(target=process.stderr.read, daemon=True).start()
    try:
        yield Server(process, int(match[1]))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wrk(server, script, connections, seconds):
    """Return what wrk says of a load."""
    command = [
        "wrk",
        "-t1",
        f"-c{connections}",
        f"-d{seconds}s",
        "--timeout",
        "10s",
        "-s",
        str(script),
    ]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{server.port}"], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


class Samplers:
    """A few steady clients that note the status and time of each answer."""

    def __init__(self, server, bodies):
        self.answers = []  # (when it ended, status, seconds)
        self._server = server
        self._bodies = bodies
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,)) for number in range(SAMPLERS)
        ]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number):
        connection = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=30)
        at = number
        while not self._stop.wait(1 / SAMPLES_S):
            begin = time.monotonic()
            try:
                connection.request(
                    "POST", "/v1/predict", self._bodies[at % len(self._bodies)], HEADERS
                )
                response = connection.getresponse()
                response.read()
                status = response.status
            except (OSError, http.client.HTTPException):
                connection.close()
                status = 0
            end = time.monotonic()
            self.answers.append((end, status, end - begin))
            at += SAMPLERS

    def between(self, begin, end, status=200):
        """Return the p50 and p99, in ms, of answers of a status in a time, and how many there were."""
        times = [
            seconds for at, code, seconds in self.answers if begin <= at <= end and code == status
        ]
        if not times:
            return None, None, 0
        p50, p99 = np.percentile(times, [50, 99]) * 1e3
        return round(p50, 1), round(p99, 1), len(times)


def capacity(server, script, connections, seconds):
    """Measure what the server does when it is busy, not overloaded."""
    measured = wrk(server, script, connections, seconds)
    answered = measured["requests"] - measured["not_2xx"]
    return {
        "phase": "capacity",
        "connections": connections,
        "seconds": round(measured["seconds"], 1),
        "documents_s": round(answered / measured["seconds"]),
        "p50_ms": round(measured["p50_ms"], 2),
        "p99_ms": round(measured["p99_ms"], 2),
        "not_2xx": measured["not_2xx"],
        "broken": measured["broken"],
        "goal": {name: GOALS[name] for name in ("documents_s", "p50_ms", "p99_ms")},
    }


def connections_for(server, script, wanted_s, first):
    """Return the connections with which answers come at this rate, a quarter more each time until
    they do.
    """
    connections = first
    while connections < MOST_CONNECTIONS:
        measured = wrk(server, script, connections, 3)
        if measured["requests"] / measured["seconds"] >= wanted_s:
            break
        connections = connections * 5 // 4
    return connections


def overload(server, script, bodies, usual_s, first, seconds):
    """Measure what the server does when five times as much is asked as it can do, and how soon it
    is well again.
    """
    connections = connections_for(server, script, OVERLOAD * usual_s, first)
    memory = server.resident_mb()
    statuses = server.statuses()
    with Samplers(server, bodies) as samplers:
        begin = time.monotonic()
        measured = wrk(server, script, connections, seconds)
        end = time.monotonic()
        after = server.statuses() - statuses
        time.sleep(5)
    p50, p99, count = samplers.between(begin + 1, end)
    _, shed_p99, _ = samplers.between(begin + 1, end, 503)
    limit = GOALS["p99_ms"] / 1e3
    late = [
        at - end
        for at, status, took in samplers.answers
        if at > end and (status != 200 or took > limit)
    ]
    grown = server.resident_mb()
    return {
        "phase": "overload",
        "connections": connections,
        "seconds": round(measured["seconds"], 1),
        "offered_s": round(measured["requests"] / measured["seconds"]),
        "times_capacity": round(measured["requests"] / measured["seconds"] / usual_s, 1),
        "accepted_s": round(after[200] / (end - begin)),
        "statuses": {str(status): count for status, count in sorted(after.items())},
        "broken": measured["broken"],
        "accepted_p50_ms": p50,
        "accepted_p99_ms": p99,
        "samples": count,
        "shed_p99_ms": shed_p99,
        "memory_mb": [round(memory), round(grown)],
        "growth": round(grown / memory - 1, 4),
        "recovered_s": round(max(late, default=0.0), 2),
        "goal": {
            "accepted_p99_ms": GOALS["overload_p99_ms"],
            "growth": GOALS["growth"],
            "recovered_s": GOALS["recovered_s"],
            "other_5xx": 0,
        },
    }


def fuzz(model, examples, folder):
    """Let Schemathesis ask every endpoint so many things, right and wrong ones."""
    with serving(model) as server:
        address = f"http://127.0.0.1:{server.port}/openapi.json"
        command = [sys.executable, "-m", "schemathesis.cli", "run", address]
        command += [
            "--max-examples",
            str(examples),
            "--phases",
            "coverage,fuzzing",
            "--continue-on-failure",
        ]
        begin = time.monotonic()
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        statuses = server.statuses()
    cases = re.search(r"([\d,]+) generated", done.stdout)
    result = {
        "phase": "schema",
        "examples": examples,
        "cases": cases and int(cases[1].replace(",", "")),
        "passed": done.returncode == 0,
        "seconds": round(time.monotonic() - begin),
        "statuses_of_predict": {str(status): count for status, count in sorted(statuses.items())},
    }
    if done.returncode:
        print(done.stdout[-5000:], done.stderr[-2000:], file=sys.stderr)
    return result


def request_bodies(path, count):
    """Return requests of one document each."""
    documents = lt.read(path)
    texts = [text for text in documents.texts[: 2 * count] if text.strip()][:count]
    return [json.dumps({"documents": [{"text": text}], "k": 5}) for text in texts]


def trained(path, folder):
    """Return the model folder, trained first where ``path`` is none."""
    if (Path(path) / "manifest.json").exists():
        return Path(path)
    lt.Longtail("xr-linear", seed=0).fit(lt.read(path)).save(folder / "model")
    return folder / "model"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="model folder, or data to train xr-linear on")
    parser.add_argument("--documents", help="real documents to ask for")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--overload-seconds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument(
        "--schema",
        type=int,
        default=0,
        metavar="N",
        help="fuzz with N examples an endpoint instead",
    )
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (most, most)
    )  # a connection is a file, here and in the server
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = trained(options.model, folder)
        if options.schema:
            print(json.dumps(fuzz(model, options.schema, folder)))
            return
        if shutil.which("wrk") is None or options.documents is None:
            sys.exit("expected wrk on PATH, and --documents FILE")
        bodies = request_bodies(options.documents, 5000)
        (folder / "bodies").write_text("\n".join(bodies) + "\n")
        script = folder / "load.lua"
        script.write_text(LUA.replace("BODIES", str(folder / "bodies")))
        with serving(
            model, "--workers", str(options.workers), "--batch", str(options.batch)
        ) as server:
            wrk(server, script, options.connections, 5)  # compile, touch, fill caches
            usual = capacity(server, script, options.connections, options.seconds)
            print(json.dumps(usual), flush=True)
            first = OVERLOAD * options.connections
            result = overload(
                server, script, bodies, usual["documents_s"], first, options.overload_seconds
            )
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
