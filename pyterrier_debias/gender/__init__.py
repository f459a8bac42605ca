"""Gender bias: rankings that lean to one gender (Bigdeli et al. 2023), and any other attribute that words indicate."""
