"""The reports that CI systems read: valid, complete, and with nothing of a file's text taken for structure."""

from __future__ import annotations

import json
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
import xmlschema
import yaml
from fixture_cases import cases
from sarif_pydantic import Sarif

ROOT = Path(__file__).resolve().parent.parent.parent

#: What the readers of JUnit XML (Jenkins, GitLab, GitHub) have in common, as a schema.
JUNIT = """
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="told"><xs:simpleContent><xs:extension base="xs:string">
    <xs:attribute name="message" type="xs:string"/><xs:attribute name="type" type="xs:string"/>
  </xs:extension></xs:simpleContent></xs:complexType>
  <xs:complexType name="case"><xs:choice minOccurs="0" maxOccurs="unbounded">
      <xs:element name="skipped" type="told"/><xs:element name="failure" type="told"/><xs:element name="error" type="told"/>
      <xs:element name="system-out" type="xs:string"/><xs:element name="system-err" type="xs:string"/></xs:choice>
    <xs:attribute name="name" type="xs:string" use="required"/><xs:attribute name="classname" type="xs:string" use="required"/>
    <xs:attribute name="time" type="xs:decimal"/></xs:complexType>
  <xs:attributeGroup name="counts"><xs:attribute name="name" type="xs:string" use="required"/>
    <xs:attribute name="tests" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="failures" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="errors" type="xs:nonNegativeInteger" use="required"/>
    <xs:attribute name="skipped" type="xs:nonNegativeInteger"/><xs:attribute name="time" type="xs:decimal"/></xs:attributeGroup>
  <xs:complexType name="suite"><xs:sequence><xs:element name="testcase" type="case" minOccurs="0" maxOccurs="unbounded"/>
    </xs:sequence><xs:attributeGroup ref="counts"/></xs:complexType>
  <xs:element name="testsuites"><xs:complexType><xs:sequence>
    <xs:element name="testsuite" type="suite" minOccurs="0" maxOccurs="unbounded"/></xs:sequence>
    <xs:attributeGroup ref="counts"/></xs:complexType></xs:element>
</xs:schema>
"""


@pytest.fixture
def reports(ckpt: Any, tmp_path: Path) -> tuple[subprocess.CompletedProcess[str], Path]:
    for case_id in ("torch-zip/flipped-bit", "torch-zip/vanished-module", "torch-zip/state-dict", "torch-zip/odd-keys"):
        case = next(c for c in cases() if c.id == case_id)
        shutil.copy(case.path, tmp_path / f"{case.name}.pt")
    (tmp_path / "sub").mkdir()
    shutil.copy(tmp_path / "flipped-bit.pt", tmp_path / "sub" / "50% a,b:c\x1b[31m.pt")
    done = ckpt(
        "verify", ".", "--report", "junit=j.xml", "--report", "sarif=s.sarif", "--report", "github=a.txt", "--json"
    )
    return done, tmp_path


def test_junit(reports: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, folder = reports
    text = (folder / "j.xml").read_text(encoding="utf-8")
    xmlschema.XMLSchema(JUNIT).validate(text)
    root = ElementTree.fromstring(text)
    document = json.loads(done.stdout)
    assert len(root.findall(".//testcase")) == len(document["checks"]) == int(root.attrib["tests"])
    assert len(root.findall(".//failure")) == int(root.attrib["failures"]) > 0
    assert len(root.findall(".//skipped")) == sum(check["status"] == "skipped" for check in document["checks"])


def test_sarif(reports: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, folder = reports
    raw = json.loads((folder / "s.sarif").read_text(encoding="utf-8"))
    sarif = Sarif.model_validate(raw)
    results = sarif.runs[0].results
    document = json.loads(done.stdout)
    assert results is not None
    assert len(results) == len(document["issues"])
    rules = [rule["id"] for rule in raw["runs"][0]["tool"]["driver"]["rules"]]
    for result in raw["runs"][0]["results"]:
        assert rules[result["ruleIndex"]] == result["ruleId"]
        uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        assert "\x1b" not in uri
        assert " " not in uri


def test_github(reports: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, folder = reports
    lines = (folder / "a.txt").read_text(encoding="utf-8").splitlines()
    assert any(line.startswith("::error file=flipped-bit.pt,title=integrity-checksum::") for line in lines)
    assert any("file=sub/50%25 a%2Cb%3Ac" in line for line in lines)
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)


def test_the_action_runs(ckpt: Any, tmp_path: Path) -> None:
    """The shell steps of action.yml, as the runner would run them, on a sound and on a damaged checkpoint."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    steps = {step["name"]: step for step in action["runs"]["steps"]}
    assert steps["Install"]["run"].startswith("python -m pip install")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ckpt").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec python -m ckpt_tools "$@"\n', encoding="utf-8")
    (tools / "ckpt").chmod(0o755)
    for case_id, code, verdict in (("torch-zip/state-dict", 0, "sound"), ("torch-zip/flipped-bit", 1, "unsound")):
        case = next(c for c in cases() if c.id == case_id)
        inputs = {name: spec.get("default", "") for name, spec in action["inputs"].items()} | {"path": f"{case.path}\n"}
        environment = {
            name: inputs[value.removeprefix("${{ inputs.").removesuffix(" }}")]
            for name, value in steps["Verify"]["env"].items()
        }
        output = tmp_path / f"output-{verdict}"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps["Verify"]["run"]],
            cwd=tmp_path,
            env={**_path_with(tools), **environment, "GITHUB_OUTPUT": str(output)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == code, done.stderr
        assert f"verdict={verdict}\n" in output.read_text(encoding="utf-8")
        assert ("::error" in done.stdout) == bool(code)
        assert {p.name for p in (tmp_path / "ckpt-reports").iterdir()} >= {"junit.xml", "verify.sarif", "verify.json"}


def _path_with(tools: Path) -> dict[str, str]:
    import os
    import sys

    return {**os.environ, "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"}


def test_the_pre_commit_hook_runs(tmp_path: Path) -> None:
    """The real pre-commit on a scratch repository, with the hook's own entry."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    verify = next(hook for hook in hooks if hook["id"] == "ckpt-verify")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ckpt").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec python -m ckpt_tools "$@"\n', encoding="utf-8")
    (tools / "ckpt").chmod(0o755)
    environment = {**_path_with(tools), "PRE_COMMIT_HOME": str(tmp_path / "home"), "GIT_CONFIG_GLOBAL": "/dev/null"}
    repository = tmp_path / "repository"
    repository.mkdir()
    config = {"repos": [{"repo": "local", "hooks": [{**verify, "language": "system"}]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    run = lambda *command: subprocess.run(  # noqa: E731
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=120
    )
    run("git", "init", "-q")
    shutil.copy(next(c for c in cases() if c.id == "torch-zip/state-dict").path, repository / "good.pt")
    run("git", "add", "-A")
    done = run("pre-commit", "run", "--all-files")
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.copy(next(c for c in cases() if c.id == "torch-zip/flipped-bit").path, repository / "bad.pt")
    run("git", "add", "-A")
    done = run("pre-commit", "run", "--all-files")
    assert done.returncode == 1
    assert "integrity-checksum" in done.stdout


def test_git_diff_reads_checkpoints(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ckpt").write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec python -m ckpt_tools "$@"\n', encoding="utf-8")
    (tools / "ckpt").chmod(0o755)
    environment = {**_path_with(tools), "GIT_CONFIG_GLOBAL": "/dev/null"}
    repository = tmp_path / "repository"
    repository.mkdir()
    run = lambda *command: subprocess.run(  # noqa: E731
        command, cwd=repository, env=environment, capture_output=True, text=True, timeout=120
    )
    run("git", "init", "-q")
    run("git", "config", "diff.ckpt.textconv", "ckpt ls")
    (repository / ".gitattributes").write_text("*.pt diff=ckpt\n", encoding="utf-8")
    small = next(c for c in cases() if c.id == "torch-zip/state-dict").path
    shutil.copy(small, repository / "model.pt")
    run("git", "add", "-A")
    run("git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    shutil.copy(next(c for c in cases() if c.id == "torch-zip/training-state").path, repository / "model.pt")
    done = run("git", "diff")
    assert "+optimizer/state/0/exp_avg\tfloat32" in done.stdout
