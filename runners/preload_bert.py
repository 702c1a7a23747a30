"""Imports what a run of BERT needs, for the process that runs are forked from: else each takes seconds for it."""

from syncline.torchvision_compat import import_torchvision

import_torchvision()

import transformers.models.bert.modeling_bert  # noqa: E402, F401  after torchvision, see there
