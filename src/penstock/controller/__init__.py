"""The controller: decides every change of the cluster's metadata, and writes it down as records before it is true."""
