"""What things cost, where each figure comes from (given, measured, fitted, assumed) and how far it may be off."""
