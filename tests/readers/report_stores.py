"""Makes stores that no short run makes: of a stopped run, with hostile texts, of an earlier version of calm,
with a forecast of times, and without runs.

    report_stores.py STORE        writes stopped.db, hostile.db, older.db, timed.db and empty.db next to it
"""
import os
import sqlite3
import sys

source = sys.argv[1]


def changed(name, *statements):
    path = os.path.join(os.path.dirname(source), name)
    with sqlite3.connect(source) as store:
        store.execute("VACUUM INTO ?", (path,))
    with sqlite3.connect(path) as store:
        for statement, *values in statements:
            store.execute(statement, values)


changed("stopped.db",
        ("UPDATE run SET status = 'interrupted', result = NULL, reason = NULL, ended_at = NULL, bytes_after = NULL WHERE id = 1",),
        ("DELETE FROM run_evaluation WHERE run_id = 1",),
        ("DELETE FROM choice WHERE run_id = 1 AND job_id > 6",),
        ("DELETE FROM run_candidate WHERE run_id = 1 AND candidate_id IN (SELECT id FROM candidate WHERE job_id > 8)",))
changed("hostile.db",
        ("UPDATE model SET name = ?", "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title = 'owned'\">"),
        ("UPDATE activation_peak SET text = CAST(? AS TEXT)", b"<b>\x1b[31m\xe2\x82" + "\u202eabc".encode()),
        ("UPDATE token_context SET text_before = CAST(? AS TEXT), text_after = ?", b"<i>\x1b]0;\x07\x98", "\u202e</i>\r\n"),
        ("UPDATE divergence_token SET text_before = ?, text = CAST(? AS TEXT), best = ?, best_float = ?", "<script>alert(1)</script>",
         b"\xf0\x9f", "<b>", "\u2028"),
        ("UPDATE run SET command = ?", "calm quantize '<img src=x onerror=alert(1)>' \n\x07"))
changed("older.db", *[("DELETE FROM " + table,) for table in
                      ("token_context", "divergence_quantile", "divergence_position", "divergence_token", "run_stage")])
changed("timed.db", ("UPDATE run_stage SET forecast_seconds = 1.25 * seconds + 0.5 WHERE run_id = 1",))
changed("empty.db", *[("DELETE FROM " + table,) for table in
                      ("run_learned", "artifact", "environment", "gate", "ablation", "run_evaluation", "choice",
                       "run_candidate", "run")])
