"""`ablate ui`: serve MLflow's pages and the reports of an output folder on the loopback address."""

import argparse
import html
import os
import socket
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from ablate.cli.locate import locate_ledger
from ablate.cli.options import add_out, add_sweep_name, add_tracking, parse_positive
from ablate.tracking.store import Store, build_client_uri, silence_mlflow
from ablate.values.terminal import print_text
from reports.uri import SERVED, find_server_address
from trainables.errors import ConfigError

HOST = "127.0.0.1"
FOLDER = "ABLATE_REPORTS"  # variable with the folder of the reports, for `build_app`
INDEX = (
    '<!DOCTYPE html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
    'content="width=device-width"><meta name="color-scheme" content="light dark">'
    "<title>Reports</title><h1>Reports</h1><ul>{items}</ul>"
    '<p><a href="/">MLflow: all runs</a></p></html>'
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_sweep_name(command)
    add_tracking(command)
    add_out(command)
    text = "The port on 127.0.0.1 (default: 5000)."
    command.add_argument("--port", type=parse_positive, default=5000, metavar="N", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the addresses of a sweep's report and of MLflow, and become MLflow's server."""
    from ablate.ledger.queries import find_sweep
    from ablate.ledger.records import Records
    from reports.compile import locate_report

    ledger = locate_ledger(args.out)
    with Records(ledger) as records:
        sweep_id = find_sweep(records, args.sweep, "SWEEP")
        sweep = records.get_sweep(sweep_id)
    store = Store(ledger.parent, args.tracking_uri)
    store.check_usable(writes=False)
    reports = ledger.parent.resolve() / "reports"
    folder = locate_report(reports, sweep["name"], sweep_id)
    if server := find_server_address(store.uri):
        fault = f"{server} has pages of its own. Open them there, and {folder / 'report.html'} here"
        raise ConfigError("--tracking-uri", f"{fault}.")
    check_port(args.port)
    address = f"http://{HOST}:{args.port}"
    print_text(f"report: {address}{SERVED}{folder.name}/report.html", flush=True)
    print_text(f"all reports: {address}{SERVED}\nMLflow: {address}/\nCtrl-C ends both.", flush=True)
    silence_mlflow()
    variables = {"MLFLOW_BACKEND_STORE_URI": build_client_uri(store.uri), FOLDER: str(reports)}
    command = [sys.executable, "-m", "mlflow", "ui", "--host", HOST, "--port", str(args.port)]
    os.execve(
        sys.executable,
        [*command, "--workers", "1", "--app-name", "ablate"],
        {**os.environ, **variables},
    )


def check_port(port: int) -> None:
    """Raise ConfigError if a port of the loopback address cannot be opened."""
    with closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            fault = f"port {port} cannot be opened ({error})"
            raise ConfigError("--port", f"{fault}. Give another one, such as 5001.") from None


def build_app() -> Any:
    """Return MLflow's web application with the reports below `/reports/`."""
    from mlflow.server.fastapi_app import app
    from starlette.requests import Request
    from starlette.responses import HTMLResponse
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles

    reports = Path(os.environ[FOLDER])

    def list_reports(_: Request) -> HTMLResponse:
        pages = sorted(reports.glob("*/report.html"), key=lambda page: -page.stat().st_mtime)
        names = [html.escape(page.parent.name, quote=True) for page in pages]
        items = "".join(f'<li><a href="{name}/report.html">{name}</a></li>' for name in names)
        return HTMLResponse(INDEX.format(items=items or "<li>There is no report yet.</li>"))

    files = StaticFiles(directory=reports, check_dir=False)
    app.router.routes[:0] = [Route(SERVED, list_reports), Mount(SERVED.rstrip("/"), files)]
    return app
