"""Validation against published runs: tables of measured steps, read into scenarios, predicted and scored."""
