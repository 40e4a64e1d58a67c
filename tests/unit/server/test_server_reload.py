"""Another model in place of the old one: by whom, and what becomes of requests."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace

import msgspec
import pytest
from asking import problem, refused, run

from longtail.errors import ModelFolderError
from longtail.server.service import load_service


def test_a_model_is_warmed_up_once(model_folder):
    service = load_service(model_folder, "cpu", 1, None)
    calls = []
    service.__dict__["predict"] = lambda key, asked: calls.append(asked)
    assert service.warm_up() > 0
    assert calls == []


class TestReload:
    def test_takes_the_place_of_the_old(self, serving, service, model_folder):
        other = load_service(model_folder, "cpu", 1, 1)
        new = replace(other, name=replace_version(other.name, "new"))
        old = replace(service, name=replace_version(service.name, "old"))

        async def question(served):
            before = await served.predict("wind")
            response = await served.client.post("/v1/reload")
            after = await served.predict("wind")
            metrics = (await served.client.get("/metrics")).text
            assert 'version="old"} 0.0' in metrics
            assert 'version="new"} 1.0' in metrics
            return (
                before.json()["model"]["version"],
                response.json(),
                after.json()["model"]["version"],
            )

        assert run(serving, question, own=old, load=lambda: new) == (
            "old",
            {"version": "new"},
            "new",
        )

    def test_what_is_the_same_is_not_loaded_again(self, serving, service):
        def never():
            raise AssertionError("loaded")

        async def question(served):
            return (await served.client.post("/v1/reload")).json()

        assert run(serving, question, load=never) == {"version": service.name.version}

    def test_a_bad_folder_leaves_the_old(self, serving, service, caplog):
        old = replace(service, name=replace_version(service.name, "old"))

        def bad():
            raise ModelFolderError("ranker.safetensors: is damaged")

        async def question(served):
            response = await served.client.post("/v1/reload")
            after = await served.predict("wind")
            return response, after.json()["model"]["version"]

        response, version = run(serving, question, own=old, load=bad)
        assert "is damaged" in problem(response, 409).detail
        assert version == "old"
        assert "not reloaded, version old is still served" in caplog.text

    def test_the_same_model_with_a_damaged_file_is_refused(
        self, serving, model_folder, tmp_path, caplog
    ):
        """Not only the manifest is looked at, and what is served goes on."""
        folder = tmp_path / "model"
        shutil.copytree(model_folder, folder)
        served_now = load_service(folder, "cpu", 1, None)
        file = next(folder.glob("ranker-*.safetensors"))
        content = file.read_bytes()

        def put(new):
            other = tmp_path / "other"
            other.write_bytes(new)
            other.rename(file)

        async def question(served):
            put(content[:-1] + bytes([content[-1] ^ 1]))
            altered = await served.client.post("/v1/reload")
            put(content[:-1])
            cut = await served.client.post("/v1/reload")
            predicted = await served.predict("wind")
            put(content)
            return altered, cut, predicted, await served.client.post("/v1/reload")

        altered, cut, predicted, whole = run(serving, question, own=served_now, model=folder)
        assert f"{file.name}: is damaged or was altered" in problem(altered, 409).detail
        assert f"{file.name}: is {len(content) - 1} bytes long" in problem(cut, 409).detail
        assert predicted.status_code == whole.status_code == 200
        message = f"not reloaded, version {served_now.name.version} is still served"
        assert caplog.text.count(message) == 2

    def test_want_of_memory_ends_a_reload_and_not_the_watch(self, serving, service, caplog):
        def bad():
            raise MemoryError

        async def question(served):
            await served.server.reloader.reload_quietly()

        run(
            serving,
            question,
            own=replace(service, name=replace_version(service.name, "old")),
            load=bad,
        )
        assert "not reloaded, version old is still served: MemoryError" in caplog.text

    @pytest.mark.parametrize("header", ["origin", "x-forwarded-for", "forwarded"])
    def test_not_through_others_without_a_token(self, serving, header):
        async def question(served):
            return await served.client.post("/v1/reload", headers={header: "http://elsewhere"})

        problem(run(serving, question), 403)
        response = run(
            serving,
            lambda served: served.client.post("/v1/reload", headers=bearer(header)),
            token="secret",
        )
        assert response.status_code == 200

    def test_not_from_elsewhere_without_a_token(self, serving):
        refused(serving, 403, b"", "/v1/reload", host="0.0.0.0")

    def test_watching(self, serving, service, model_folder, tmp_path):
        folder = tmp_path / "model"
        shutil.copytree(model_folder, folder)
        old = replace(service, name=replace_version(service.name, "old"))

        async def question(served):
            watching = asyncio.create_task(served.server.reloader.watch(0.01))
            await asyncio.sleep(0.05)
            assert served.server.reloader.current is old
            copy = folder / "copy"
            shutil.copy(folder / "manifest.json", copy)
            copy.rename(folder / "manifest.json")
            while served.server.reloader.current is old:
                await asyncio.sleep(0.01)
            watching.cancel()

        run(serving, question, own=old, model=folder, load=lambda: service)


def replace_version(name, version):
    return msgspec.structs.replace(name, version=version)


def bearer(header):
    return {header: "http://elsewhere", "authorization": "Bearer secret"}
