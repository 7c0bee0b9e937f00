"""HTML of the pages, from the state that `views` computes. Nothing here decides or reads anything."""
