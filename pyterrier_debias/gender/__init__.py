"""Gender bias: rankings that lean to one gender (Bigdeli et al. 2023), or to any other attribute that words indicate."""
