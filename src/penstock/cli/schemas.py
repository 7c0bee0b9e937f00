"""`penstock schemas`: lists, shows, registers, checks, compares, deletes and moves schemas of a registry."""

from __future__ import annotations

import contextlib
import json as json_module
import os
import sys
import urllib.parse
from collections.abc import Iterator, Mapping
from http.client import UNAUTHORIZED
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.output import Json, command_group, fail, note, print_json, print_table

if TYPE_CHECKING:
    from penstock.serializers.registry_http import RegistryHttp

app = command_group("List, show, register, check, compare, delete, export and import schemas of a schema registry.")

REGISTRY_VARIABLE = "PENSTOCK_REGISTRY"
DEFAULT_REGISTRY = "http://127.0.0.1:8081"
_TYPES = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}

Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        envvar=REGISTRY_VARIABLE,
        metavar="URL",
        help="The registry; with http://USER:PASSWORD@HOST:PORT, as this user.",
    ),
]
Authority = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Certificates (PEM) that the registry's is checked against.", show_default=False),
]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The subject.")]
File = Annotated[str, typer.Argument(metavar="FILE", help="The schema; - is standard input.")]
Type = Annotated[
    str | None,
    typer.Option("--type", metavar="TYPE", help="AVRO, PROTOBUF or JSON; by default as FILE ends.", show_default=False),
]
References = Annotated[
    list[str] | None,
    typer.Option(
        "--reference",
        metavar="NAME=SUBJECT:VERSION",
        help="A schema that this one uses; repeatable.",
        show_default=False,
    ),
]


@app.callback()
def group() -> None:
    pass


@app.command("list")
def list_schemas(
    prefix: Annotated[str, typer.Argument(metavar="[PREFIX]", help="Of the subjects.", show_default=False)] = "",
    deleted: Annotated[bool, typer.Option("--deleted", help="Softly deleted ones, too.")] = False,
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
    json: Json = False,
) -> None:
    """List the subjects with their versions and the id of the latest.

    Examples:

        penstock schemas list
        penstock schemas list orders-
    """
    with _connected(registry, authority) as client:
        found = client.request(
            "GET", "schemas", query={"subjectPrefix": prefix or ":*:", "deleted": str(deleted).lower()}
        )
    by_subject: dict[str, list[dict[str, Any]]] = {}
    for each in found:
        by_subject.setdefault(each["subject"], []).append(each)
    rows = [
        {
            "subject": subject,
            "type": versions[-1].get("schemaType", "AVRO"),
            "versions": [each["version"] for each in versions],
            "id": versions[-1]["id"],
        }
        for subject, versions in by_subject.items()
    ]
    if json:
        print_json(rows)
        return
    print_table(["SUBJECT", "TYPE", "VERSIONS", "LATEST ID"], [list(row.values()) for row in rows])
    if not rows:
        note("there are no schemas")


@app.command("show")
def show(
    subject: Subject,
    version: Annotated[str, typer.Option("--version", metavar="N", help="A version, or latest.")] = "latest",
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
    json: Json = False,
) -> None:
    """Print a schema; with --json also its id, version and references. SUBJECT may be an id: show 17.

    Examples:

        penstock schemas show orders-value
        penstock schemas show orders-value --version 2
        penstock schemas show 17
    """
    with _connected(registry, authority) as client:
        if subject.isdecimal():
            found = client.request("GET", "schemas", "ids", subject)
        else:
            found = client.request("GET", "subjects", subject, "versions", version)
    if json:
        print_json(found)
    else:
        print(_pretty(found))


@app.command("register")
def register(
    subject: Subject,
    file: File,
    schema_type: Type = None,
    reference: References = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Normalize the schema first.")] = False,
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
    json: Json = False,
) -> None:
    """Register a schema under a subject, and print its id.

    Examples:

        penstock schemas register orders-value order.avsc
        penstock schemas register orders-value order.proto --reference money.proto=money:1
    """
    body = _candidate(file, schema_type, reference)
    with _connected(registry, authority) as client:
        answer = client.request(
            "POST", "subjects", subject, "versions", body=body, query={"normalize": str(normalize).lower()}
        )
    print_json(answer) if json else print(answer["id"])


@app.command("check")
def check(
    subject: Subject,
    file: File,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="N", help="Against this version only, or latest.", show_default=False),
    ] = None,
    schema_type: Type = None,
    reference: References = None,
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
    json: Json = False,
) -> None:
    """Check whether a schema could be registered under a subject. Exit status 1 if not.

    Examples:

        penstock schemas check orders-value order.avsc
        penstock schemas check orders-value order.avsc --version latest
    """
    body = _candidate(file, schema_type, reference)
    path = ["compatibility", "subjects", subject, "versions", *([version] if version else [])]
    with _connected(registry, authority) as client:
        answer = client.request("POST", *path, body=body, query={"verbose": "true"})
    if json:
        print_json(answer)
    else:
        print("compatible" if answer["is_compatible"] else "\n".join(answer.get("messages") or ["incompatible"]))
    if not answer["is_compatible"]:
        raise typer.Exit(1)


@app.command("diff")
def diff(
    subject: Subject,
    older: Annotated[str, typer.Argument(metavar="OLD", help="A version.")],
    newer: Annotated[str, typer.Argument(metavar="NEW", help="A version, or latest.")] = "latest",
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
) -> None:
    """Show how two versions of a subject differ, line by line.

    Examples:

        penstock schemas diff orders-value 1
        penstock schemas diff orders-value 1 2
    """
    import difflib

    with _connected(registry, authority) as client:
        old, new = (
            _pretty(client.request("GET", "subjects", subject, "versions", version)).splitlines()
            for version in (older, newer)
        )
    for line in difflib.unified_diff(old, new, f"{subject} {older}", f"{subject} {newer}", lineterm=""):
        print(line)


@app.command("delete")
def delete(
    subject: Subject,
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="N", help="Only this version, or latest.", show_default=False),
    ] = None,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="For ever; needs a deletion without this option first.")
    ] = False,
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
) -> None:
    """Delete a subject or one version of it. Its ids can still be read, unless the deletion is permanent.

    Examples:

        penstock schemas delete orders-value
        penstock schemas delete orders-value --permanent
    """
    path = ["subjects", subject, *(["versions", version] if version else [])]
    with _connected(registry, authority) as client:
        answer = client.request("DELETE", *path, query={"permanent": str(permanent).lower()})
    numbers = answer if isinstance(answer, list) else [answer]
    note(f"deleted {subject} {', '.join(map(str, numbers))}")


@app.command("export")
def export(
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
) -> None:
    """Print all schemas of a registry, one JSON object a line, for import into another one.

    Versions and ids are kept, softly deleted versions too. Schemas come after those that they refer to.

    Examples:

        penstock schemas export --registry http://old:8081 > schemas.jsonl
    """
    with _connected(registry, authority) as client:
        found = client.request("GET", "schemas", query={"subjectPrefix": ":*:", "deleted": "true"})
    for each in _in_order(found):
        print_json(each)


@app.command("import")
def import_schemas(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What export printed; - is standard input.")],
    registry: Registry = DEFAULT_REGISTRY,
    authority: Authority = None,
) -> None:
    """Register exported schemas under their ids and versions. Subjects are in mode IMPORT meanwhile.

    Examples:

        penstock schemas import schemas.jsonl
    """
    lines = [json_module.loads(line) for line in _read(file).splitlines() if line.strip()]
    subjects = list(dict.fromkeys(each["subject"] for each in lines))
    with _connected(registry, authority) as client:
        for subject in subjects:
            client.request("PUT", "mode", subject, body={"mode": "IMPORT"}, query={"force": "true"})
        try:
            for each in lines:
                kept = {name: each[name] for name in _KEPT if name in each}
                client.request("POST", "subjects", each["subject"], "versions", body=kept)
                if each.get("deleted"):
                    client.request("DELETE", "subjects", each["subject"], "versions", str(each["version"]))
        finally:
            for subject in subjects:
                client.request("DELETE", "mode", subject)
    note(f"imported {len(lines)} versions of {len(subjects)} subjects")


_KEPT = ("schema", "schemaType", "references", "metadata", "ruleSet", "id", "version")


class _Client:
    def __init__(self, http: RegistryHttp) -> None:
        self._http = http

    def request(self, method: str, *path: str, body: object = None, query: Mapping[str, str] | None = None) -> Any:
        """The JSON answer. The parts of the path are encoded."""
        target = "/" + "/".join(urllib.parse.quote(part, safe="") for part in path)
        return self._http.request(method, f"{target}?{urllib.parse.urlencode(query)}" if query else target, body)


@contextlib.contextmanager
def _connected(url: str, authority: str | None) -> Iterator[_Client]:
    from penstock.serializers.registry_http import RegistryError, RegistryHttp

    options = {"ssl.ca.location": authority} if authority else {}
    try:
        http = RegistryHttp(url if "://" in url else f"http://{url}", options, timeout=60)
    except ValueError as error:
        fail(str(error))
    try:
        yield _Client(http)
    except RegistryError as error:
        hint = "; give a user: --registry http://USER:PASSWORD@HOST:PORT" if error.status == UNAUTHORIZED else ""
        fail(f"{error}{hint}")
    finally:
        http.close()


def _candidate(file: str, schema_type: str | None, references: list[str] | None) -> dict[str, Any]:
    kind = schema_type or _TYPES.get(os.path.splitext(file)[1], "AVRO")
    return {
        "schema": _read(file),
        "schemaType": kind.upper(),
        "references": [_reference(each) for each in references or ()],
    }


def _reference(text: str) -> dict[str, Any]:
    name, equals, place = text.partition("=")
    subject, colon, version = place.rpartition(":")
    if not equals or not colon or not version.isdecimal():
        fail(f"--reference {text!r} is not NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def _read(file: str) -> str:
    if file == "-":
        return sys.stdin.read()
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def _pretty(found: dict[str, Any]) -> str:
    """JSON over several lines; .proto as it is."""
    text: str = found["schema"]
    if found.get("schemaType", "AVRO") == "PROTOBUF":
        return text
    return json_module.dumps(json_module.loads(text), indent=2, ensure_ascii=False)


def _in_order(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Schemas after those that they refer to; otherwise by subject and version."""
    places = {(each["subject"], each["version"]): each for each in found}
    done: dict[tuple[str, int], dict[str, Any]] = {}

    def add(place: tuple[str, int], depth: int = 0) -> None:
        if place in done or place not in places or depth > 100:
            return
        for reference in places[place].get("references") or ():
            add((reference["subject"], reference["version"]), depth + 1)
        done[place] = places[place]

    for place in sorted(places):
        add(place)
    return list(done.values())
