"""The unmodified official JavaScript client against the gateway: small programs, directly and by the gateway's proxy."""

import json
import os
import pathlib
import subprocess

import pytest
from harness import BASE, ROOT

STATE = pathlib.Path(os.environ.get("SANDGATE_STATE", pathlib.Path.home() / ".cache/sandgate"))

# every program: a sandbox, what it does with it, and its end whatever happened
FRAME = """
import {{ ConnectionConfig, Sandbox, SandboxManager, SandboxApiException }} from "@alibaba-group/opensandbox";
import assert from "node:assert/strict";
const [domain, apiKey, useServerProxy, image] = JSON.parse(process.env.PROGRAM_ARGS);
const connectionConfig = new ConnectionConfig({{ domain, apiKey, useServerProxy, requestTimeoutSeconds: 60 }});
const sandbox = await Sandbox.create({{ connectionConfig, image, timeoutSeconds: 300, metadata: {{ from: "js" }} }});
const text = (execution) => execution.logs.stdout.map((m) => m.text).join("");
try {{
{body}
}} finally {{
    await sandbox.kill().catch(() => undefined);
    await sandbox.close();
}}
console.log("done");
"""


@pytest.fixture(scope="session")
def node():
    made = subprocess.run([ROOT / "deploy/setup/node.sh"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


@pytest.fixture(params=[False, True], ids=["direct", "proxy"])
def run(request, node, shared):
    def start(body):
        done = subprocess.run(
            [node, "--input-type=module"],
            input=FRAME.format(body=body),
            cwd=STATE / "node/modules",  # where the client is found
            env={**os.environ, "PROGRAM_ARGS": json.dumps([shared.domain, shared.key, request.param, BASE])},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0 and done.stdout.endswith("done\n"), done.stdout + done.stderr

    return start


def test_life(run):
    run("""
    const info = await sandbox.getInfo();
    assert.equal(info.status.state, "Running");
    assert.equal(info.metadata.from, "js");
    assert.equal(await sandbox.isHealthy(), true);
    await sandbox.renew(600);
    const left = (await sandbox.getInfo()).expiresAt - Date.now();
    assert.ok(left > 590e3 && left < 610e3, String(left));
    assert.ok((await sandbox.getEndpoint(8080)).endpoint);

    const manager = SandboxManager.create({ connectionConfig });
    assert.ok((await manager.listSandboxInfos({ states: ["Running"], pageSize: 50 })).items.some((s) => s.id === sandbox.id));
    await sandbox.pause();
    assert.equal((await sandbox.getInfo()).status.state, "Paused");
    const resumed = await sandbox.resume();
    assert.equal(text(await resumed.commands.run("echo again")).trim(), "again");
    // not closed: the two share their connections
    await sandbox.kill();
    await assert.rejects(manager.getSandboxInfo(sandbox.id), SandboxApiException);
    await manager.close();
    """)


def test_commands(run):
    """A client of 0.x gets lines without their ends (design decision 21)."""
    run("""
    const seen = [];
    const handlers = {
        onInit: () => seen.push("init"),
        onStdout: (m) => seen.push(m.text),
        onStderr: (m) => seen.push("err " + m.text),
        onExecutionComplete: () => seen.push("complete"),
    };
    const good = await sandbox.commands.run("echo one; echo two; echo bad >&2; printf tail", undefined, handlers);
    assert.deepEqual(good.logs.stdout.map((m) => m.text), ["one", "two", "tail"]);
    assert.deepEqual(good.logs.stderr.map((m) => m.text), ["bad"]);
    assert.equal(good.exitCode, 0);
    assert.equal(seen[0], "init");
    assert.equal(seen.at(-1), "complete");

    const streamed = [];
    for await (const event of sandbox.commands.runStream("for i in 1 2 3; do echo $i; done")) streamed.push(event);
    assert.equal(streamed[0].type, "init");
    assert.equal(streamed.at(-1).type, "execution_complete");
    assert.deepEqual(streamed.filter((e) => e.type === "stdout").map((e) => e.text), ["1", "2", "3"]);

    const bad = await sandbox.commands.run("exit 7", { workingDirectory: "/tmp" });
    assert.equal(bad.exitCode, 7);
    assert.equal(bad.error.name, "CommandExecError");
    assert.equal(text(await sandbox.commands.run("pwd; echo $A", { workingDirectory: "/tmp", envs: { A: "b" } })), "/tmpb");

    const back = await sandbox.commands.run("echo logged; sleep 1000", { background: true });
    const status = await sandbox.commands.getCommandStatus(back.id);
    assert.equal(status.running, true);
    let logs = "";
    while (!logs.includes("logged")) logs = (await sandbox.commands.getBackgroundCommandLogs(back.id)).content;
    await sandbox.commands.interrupt(back.id);
    assert.equal((await sandbox.commands.getCommandStatus(back.id)).running, false);
    """)


def test_files(run):
    run("""
    await sandbox.files.createDirectories([{ path: "/tmp/d", mode: 755 }]);
    const bytes = new Uint8Array(300000).map((_, i) => i % 251);
    await sandbox.files.writeFiles([
        { path: "/tmp/d/a.txt", data: "h\\u00e9llo\\n2\\n3\\n", mode: 600 },
        { path: "/tmp/d/b.bin", data: bytes },
        { path: "/tmp/d/s", data: new Blob(["streamed"]).stream() },
    ]);
    assert.equal(await sandbox.files.readFile("/tmp/d/a.txt"), "h\\u00e9llo\\n2\\n3\\n");
    assert.equal(await sandbox.files.readFile("/tmp/d/s"), "streamed");
    assert.equal(await sandbox.files.readFile("/tmp/d/a.txt", { offset: 2, limit: 1 }), "2");
    assert.deepEqual(await sandbox.files.readBytes("/tmp/d/b.bin"), bytes);
    assert.deepEqual(await sandbox.files.readBytes("/tmp/d/b.bin", { range: "bytes=10-19" }), bytes.slice(10, 20));
    let n = 0;
    for await (const part of sandbox.files.readBytesStream("/tmp/d/b.bin")) n += part.length;
    assert.equal(n, bytes.length);
    const info = (await sandbox.files.getFileInfo(["/tmp/d/a.txt"]))["/tmp/d/a.txt"];
    assert.equal(info.size, 11);
    assert.equal(info.mode, 600);
    assert.equal(info.type, "file");
    assert.deepEqual((await sandbox.files.listDirectory({ path: "/tmp/d" })).map((f) => f.path), ["/tmp/d/a.txt", "/tmp/d/b.bin", "/tmp/d/s"]);
    await sandbox.files.deleteFiles(["/tmp/d/s"]);
    await assert.rejects(sandbox.files.readFile("/tmp/d/s"), (e) => e instanceof SandboxApiException && e.statusCode === 404);
    await sandbox.files.deleteDirectories(["/tmp/d"]);
    """)


def test_search(run):
    run("""
    await sandbox.files.writeFiles([{ path: "/tmp/d/a.txt", data: "1" }, { path: "/tmp/d/b.bin", data: "2" }]);
    assert.deepEqual((await sandbox.files.search({ path: "/tmp/d", pattern: "*.txt" })).map((f) => f.path), ["/tmp/d/a.txt"]);
    """)


def test_changes_of_files(run):
    run("""
    await sandbox.files.writeFiles([{ path: "/tmp/a", data: "old old" }]);
    await sandbox.files.replaceContents([{ path: "/tmp/a", oldContent: "old", newContent: "new" }]);
    await sandbox.files.setPermissions([{ path: "/tmp/a", mode: 640 }]);
    await sandbox.files.moveFiles([{ src: "/tmp/a", dest: "/tmp/b" }]);
    assert.equal(await sandbox.files.readFile("/tmp/b"), "new new");
    assert.equal((await sandbox.files.getFileInfo(["/tmp/b"]))["/tmp/b"].mode, 640);
    """)


def test_sessions(run):
    run("""
    const id = await sandbox.commands.createSession({ workingDirectory: "/tmp" });
    await sandbox.commands.runInSession(id, "export A=1");
    assert.equal(text(await sandbox.commands.runInSession(id, "echo $A $PWD")).trim(), "1 /tmp");
    const ended = await sandbox.commands.runInSession(id, "cd /usr; exit 7");
    assert.equal(ended.error.value, "7");
    assert.equal(text(await sandbox.commands.runInSession(id, "echo $A $PWD")).trim(), "1 /usr");
    assert.equal(text(await sandbox.commands.runInSession(id, "pwd", { workingDirectory: "/etc" })).trim(), "/etc");
    const other = await sandbox.commands.createSession();
    assert.equal(text(await sandbox.commands.runInSession(other, "echo -$A-")).trim(), "--");
    await sandbox.commands.deleteSession(id);
    await assert.rejects(sandbox.commands.runInSession(id, "pwd"), (e) => e instanceof SandboxApiException && e.statusCode === 404);
    """)


def test_metrics(run):
    run("""
    const m = await sandbox.getMetrics();
    assert.equal(m.cpuCount, 1); // what the client asks for
    assert.equal(m.memoryTotalMiB, 2048);
    assert.ok(m.memoryUsedMiB >= 0 && m.memoryUsedMiB <= m.memoryTotalMiB);
    assert.ok(m.cpuUsedPercentage >= 0 && m.cpuUsedPercentage <= 100);
    assert.ok(Math.abs(m.timestamp - Date.now()) < 60e3);
    """)
