"""The command line: one folder for each noun, one file for each verb."""
