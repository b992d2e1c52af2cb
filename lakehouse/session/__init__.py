"""The Spark session of lakejoin, the engines beside it, and the one function through which all writes go."""
