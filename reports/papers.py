"""The five papers."""

from reports import adasync, backup, dssp, dssync, psp
from reports.exhibits import Paper

PAPERS: dict[str, Paper] = {paper.PAPER.key: paper.PAPER for paper in (psp, backup, adasync, dssp, dssync)}
