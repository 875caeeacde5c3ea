"""Classification of ontologies by an OWL 2 DL reasoner (`reason="owl"`). The entry point is the module `owl`."""
