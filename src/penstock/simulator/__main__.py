"""`python -m penstock.simulator`: runs a campaign of simulated clusters, seed by seed."""

import sys

from penstock.simulator.campaign import main

if __name__ == "__main__":
    sys.exit(main())
