"""The controller: decides every change of the cluster's metadata, and writes it as records before it takes effect."""
