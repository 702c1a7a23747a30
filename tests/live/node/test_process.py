"""The file that tells all processes which attempt at a run is under way."""

import os
import stat
from pathlib import Path

from syncline.live.node.process import Job, new_job_name, new_secret


def test_an_attempt_is_a_file_of_the_record_that_its_owner_alone_may_read(tmp_path: Path) -> None:
    """Whatever the owner's umask lets others read, and whatever a coordinator that was killed has left."""
    job = Job(str(tmp_path), new_job_name(), ["seed=1"], new_secret(), "tcp:127.0.0.1:1", resume=1.5, num_present=2)
    (tmp_path / f"{job.name}.draft").write_text("{")
    (tmp_path / f"{job.name}.draft").chmod(0o666)
    before = os.umask(0)
    try:
        job.write()
    finally:
        os.umask(before)
    grown = job.grown(3)
    assert Job.read(tmp_path, job.name) == grown
    assert (grown.num_present, grown.secret, grown.words, grown.resume) == (3, job.secret, ["seed=1"], 1.5)
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    job.remove()
    job.remove()
    assert Job.read(tmp_path, job.name) is None
    assert Job.read(tmp_path / "absent", job.name) is None
