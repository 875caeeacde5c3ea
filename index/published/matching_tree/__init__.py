"""The `matching_tree` engine: the tree of Aguilera et al., "Matching events in a content-based subscription system"."""
