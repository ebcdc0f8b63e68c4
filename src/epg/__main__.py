"""Run the command line as `python -m epg`."""

from epg.cli import main

main()
