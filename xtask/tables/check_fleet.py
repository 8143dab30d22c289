"""Runs a query of docs/queries.md with DuckDB and with Spark on two workers, for each job of a folder of runs, and compares both
with the report of the job's recordings.

usage: check_fleet.py QUERIES.md FOLDER REPORT.json…    FOLDER has `runs`; REPORT.json is named as the job's id: ID.json
"""

import json
import os
import re
import sys
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession

from checks import check, end

TITLE, JOB = "What does each line hold over the ranks of a job?", "'llama-7'"
COLUMNS = ["line", "least", "median", "most", "lacking", "total"]


def main():
    queries, folder, *reports = sys.argv[1:]
    section = Path(queries).read_text().split(f"## {TITLE}\n")[1]
    query = re.search(r"^```sql\n(.*?);\n```", section, re.S | re.M)[1]
    reports = {Path(report).stem: json.loads(Path(report).read_text()) for report in reports}
    os.chdir(folder)
    duck = duckdb.connect()
    spark = SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false").getOrCreate()
    for table in ["runs", "devices", "blocks", "stacks"]:
        duck.sql(f"create view {table} as from 'runs/*/{table}.parquet'")
        spark.read.parquet(f"runs/*/{table}.parquet").createOrReplaceTempView(table)
    # The driver's own memory is among the executors'.
    check("Spark's workers", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1, 2)
    check("jobs in the folder", duck.sql("select count(distinct job) from runs").fetchall()[0][0], len(reports))
    for job, report in reports.items():
        text = query.replace(JOB, f"'{job}'")
        engines = {
            "DuckDB": [tuple(row) for row in duck.sql(text).fetchall()],
            "Spark": [tuple(row) for row in spark.sql(text).collect()],
        }
        for engine, rows in engines.items():
            compare(f"{engine}, job {job}", rows, report)
    spark.stop()
    end()


def compare(name, rows, report):
    """Every line of the report's table, and the sum of all ranks' peaks."""
    found = {row[0]: dict(zip(COLUMNS[1:], map(int, row[1:]))) for row in rows}
    (table,) = (section["rows"] for section in report["sections"] if section["key"] == "ranks_by_line")
    wanted = {
        row["label"]: {
            "least": row["least_bytes"], "median": row["median_bytes"], "most": row["most_bytes"],
            "lacking": row["lacking"], "total": row["sum_bytes"],
        }
        for row in table
    }
    check(f"{name}: bytes of all ranks", sum(row["total"] for row in found.values()), sum(row["total"] for row in wanted.values()))
    check(f"{name}: lines", len(found), len(wanted))
    differ = {line: (found.get(line), row) for line, row in wanted.items() if found.get(line) != row}
    check(f"{name}: lines that differ from the report's {len(wanted)}", differ, {})


main()
