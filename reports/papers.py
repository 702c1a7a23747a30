"""The five papers, and the overview that belongs to none."""

from reports import adasync, backup, dssp, dssync, psp
from reports.exhibits import Paper
from reports.overview import OVERVIEW

PAPERS: dict[str, Paper] = {paper.PAPER.key: paper.PAPER for paper in (psp, backup, adasync, dssp, dssync)}
SHOWN: dict[str, Paper] = {**PAPERS, OVERVIEW.key: OVERVIEW}
