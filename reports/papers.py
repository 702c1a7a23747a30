"""The five papers, and what is of none."""

from reports import adasync, backup, dssp, dssync, psp
from reports.exhibits import Paper
from reports.overview import OVERVIEW

PAPERS: dict[str, Paper] = {paper.PAPER.key: paper.PAPER for paper in (psp, backup, adasync, dssp, dssync)}
SHOWN: dict[str, Paper] = {**PAPERS, OVERVIEW.key: OVERVIEW}
