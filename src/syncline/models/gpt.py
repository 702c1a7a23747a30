"""GPT-2's decoder, through transformers."""

from torch import Tensor, nn

from syncline.torchvision_compat import import_torchvision


class Gpt(nn.Module):
    """Embeddings of symbols and positions, decoders with attention to what came before, and the next symbol's logits.

    Args:
        num_symbols: V of the alphabet; 256 for bytes.
        max_length: symbols of the longest row, >= 1.
        hidden_size: width, a multiple of num_heads.
        num_layers: decoders, >= 1.
        num_heads: of the attention, >= 1.
        dropout: of embeddings, attention and residuals, in [0, 1); drawn from torch's global generator.

    Source: Radford et al. 2019, "Language models are unsupervised multitask learners", section 2.3. Layer norms come
    first, the embedding is also the last layer; weights are drawn from normal(0, 0.02), those that end on the residual
    path from normal(0, 0.02 / sqrt(2 num_layers)). With 50,257 symbols, length 1,024, 12 layers of 768 and 12 heads:
    124,439,808 parameters.
    """

    def __init__(
        self, num_symbols: int, max_length: int, hidden_size: int, num_layers: int, num_heads: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        # With a CPU-only torch, transformers finds a torchvision that cannot be imported unless it already is.
        import_torchvision()
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"vocab_size": num_symbols, "n_positions": max_length}
        sizes |= {"n_embd": hidden_size, "n_layer": num_layers, "n_head": num_heads}
        drawn = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
        nothing = {"bos_token_id": None, "eos_token_id": None}  # it generates nothing here
        self.network = GPT2LMHeadModel(GPT2Config(**sizes, **drawn, **nothing, attn_implementation="sdpa"))

    def forward(self, symbols: Tensor) -> Tensor:
        """Symbols int64 [B, T <= max_length] -> logits [B, T, V] of the symbol after each."""
        logits: Tensor = self.network(input_ids=symbols, use_cache=False).logits
        return logits
