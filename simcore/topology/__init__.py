"""Clusters as graphs: machines and fabrics declared, built with networkx, and the flows of collectives over them."""
