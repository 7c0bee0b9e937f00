"""Types that the group and the transaction coordinator share, for talking to their runtime. Pure."""
