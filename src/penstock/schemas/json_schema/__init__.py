"""JSON Schema: drafts 4 to 2020-12, and the rules by which one schema accepts what another one accepts."""
