"""Files that people wrote: the cell file, YAML, texts."""
