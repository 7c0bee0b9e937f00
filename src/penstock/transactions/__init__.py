"""Transaction coordinators, pure: the states of transactional ids and the markers they owe."""
