"""The schemes of `fallow bench aryl`, one file each, which says its name."""
