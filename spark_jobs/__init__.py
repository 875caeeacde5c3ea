"""The same matcher over archives and streams, on Spark. Empty in this version: see the README of this folder."""
