"""Pure drawing: from plain values to pictures. Nothing is computed here."""
