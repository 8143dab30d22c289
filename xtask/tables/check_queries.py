"""Runs the queries of docs/queries.md with DuckDB and Polars on exported runs, and compares what they say with the reports.

usage: check_queries.py QUERIES.md FOLDER REPORT.json…    FOLDER has `runs`; REPORT.json is named as its run: NAME.json
"""

import json
import os
import re
import sys
from pathlib import Path

import duckdb

from checks import check, end

# The lane `fleet` runs this one.
OF_FLEET = "What does each line hold over the ranks of a job?"


def main():
    queries, folder, *reports = sys.argv[1:]
    text = Path(queries).read_text()
    reports = {Path(report).stem: json.loads(Path(report).read_text()) for report in reports}
    os.chdir(folder)
    results = {}
    connection = duckdb.connect()
    for section in re.split(r"^## ", text, flags=re.M):
        title = section.splitlines()[0]
        if title == OF_FLEET:
            continue
        for block in re.findall(r"^```sql\n(.*?)^```", section, re.S | re.M):
            for statement in filter(str.strip, block.split(";")):
                if statement.strip().startswith("create"):
                    connection.execute(statement)
                    continue
                relation = connection.sql(statement)
                rows = [dict(zip(relation.columns, row)) for row in relation.fetchall()]
                results.setdefault(title, []).append(rows)
                check(f"{title} has rows", bool(rows), True)
    devices = {(run, of["device"]): of for run, report in reports.items() for of in report["devices"]}
    peaks(results, devices)
    lines(results["Who held what at the peak?"][0], devices, "DuckDB")
    worst(results["Which lines are the worst over all runs?"][0], reports)
    changes(connection, results["What changed between two commits?"][0])
    highest(results["How does memory grow by the minute?"][0], devices)
    polars = {}
    exec(re.search(r"^```python\n(import polars.*?)^```", text, re.S | re.M)[1], polars)
    lines([{**row, "bytes": row["peak_bytes"]} for row in polars["lines"].to_dicts()], devices, "Polars")
    end()


def peaks(results, devices):
    for row in results["Which runs have the largest peaks?"][0]:
        key = (row["run"], row["device"])
        check(f"peak of {' '.join(key)}", row["peak_bytes"], devices[key]["peak"]["total_bytes"])


def lines(rows, devices, reader):
    """The sum of each device, and every row of the report's table."""
    for (run, device), report in devices.items():
        found = {row["line"]: row["bytes"] for row in rows if (row["run"], row["device"]) == (run, device)}
        table = report["peak_by_line"]
        check(f"{reader}: bytes at the peak of {run} {device}", sum(found.values()), table["total_bytes"])
        wanted = {row["label"]: row["bytes"] for row in table["rows"] if row["count"] is not None and row["bytes"] > 0}
        same = {line: found.get(line) for line in wanted} == wanted
        check(f"{reader}: the {len(wanted)} lines of {run} {device} are the report's", same, True)


def worst(rows, reports):
    """Over all runs, the largest line of any main device."""
    tables = [of["peak_by_line"]["rows"] for report in reports.values() for of in report["devices"]]
    largest = {row["label"]: row["bytes"] for rows in tables for row in rows if row["bytes"] == rows[0]["bytes"]}
    check("the worst line is the largest of a report", rows[0]["most_bytes"], largest.get(rows[0]["line"]))


def changes(connection, rows):
    """The changes of all functions add up to the change of the largest run of each, if each commit has one run."""
    total = "select sum(b.peak_bytes) from blocks b join devices using (run, device) join labels using (run) " \
        "where is_main and stack is not null and key = 'commit' and value = ?"
    before, after = (connection.execute(total, [commit]).fetchone()[0] for commit in ("before", "after"))
    found = sum(row["after"] for row in rows), sum(row["before"] for row in rows)
    check("functions of the commit before", found[1] <= before and found[1] > before * 0.9, True)
    check("functions of the commit after", found[0] <= after and found[0] > after * 0.9, True)


def highest(rows, devices):
    for row in rows:
        report = devices[(row["run"], row["device"])]
        if not report.get("sampled") and row["minute"] == report["peak"]["time_ns"] // 60_000_000_000:
            peak = report["peak"]
            check(f"the highest total of {row['run']} {row['device']}", row["highest"], peak["bytes"])


main()
