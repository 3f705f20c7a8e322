"""How the console writes times: in one way, to the second, with the zone."""

DATETIME_FORMAT = "Y-m-d H:i:s e"
DATE_FORMAT = "Y-m-d"
TIME_FORMAT = "H:i:s"
