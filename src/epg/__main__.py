"""Run the command line as `python -m epg`."""

from epg.people.cli import main

main()
